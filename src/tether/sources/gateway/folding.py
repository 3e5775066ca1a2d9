"""Folding rows per key in Arrow, before they become Spark's rows.

Only what gives the same answer in any number of steps: sums, counts, smallest and largest values. Keys
and extremes of broken numbers are left to Spark, for it orders and compares NaN in its own way.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tether.sources.gateway.errors import BadRowsError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 2**63
# Rows that came over the wire need not lie as Arrow's own allocations do; it asks how to take that.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


class FoldColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One aggregate.

    Args:
        name: Of the result.
        how: What is computed; "count" without a column counts rows.
        column: Of the input.
        kind: Arrow type that the column is cast to first, by name: "int64" or "double"; "": as it is.
    """

    name: str
    how: Literal["sum", "count", "min", "max"]
    column: str = ""
    kind: str = ""


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are folded: one row for each key.

    Example:
        >>> fold = Fold(key=("k",), columns=(FoldColumn(name="n", how="count"),
        ...                                  FoldColumn(name="s", how="sum", column="v")))
        >>> folded(pa.table({"k": [1, 2, 1], "v": [5, 6, 7]}), fold).sort_by("k").to_pylist()
        [{'k': 1, 'n': 2, 's': 12}, {'k': 2, 'n': 1, 's': 6}]
    """

    key: tuple[str, ...]
    columns: tuple[FoldColumn, ...]


def folded(rows: pa.Table, fold: Fold) -> pa.Table:
    """One row for each key.

    Raises:
        BadRowsError: A sum of whole numbers could pass 64 bits.
    """
    asked: list[tuple[str, str, object]] = []
    inputs = {name: rows[name] for name in fold.key}
    for at, column in enumerate(fold.columns):
        if not column.column:
            asked.append((fold.key[0], "count", pc.CountOptions(mode="all")))
            continue
        values = rows[column.column]
        if column.kind:
            values = values.cast(_type(column.kind))
        if column.how == "sum":
            _check_sum(column, values)
        inputs[f"\0{at}"] = values
        asked.append((f"\0{at}", column.how, None))
    out = pa.table(inputs).group_by(list(fold.key), use_threads=False).aggregate(asked)
    names = [column.name for column in fold.columns]
    # pyarrow gives the key's columns first or last, by its version.
    place = {name: out.schema.get_field_index(name) for name in fold.key}
    others = [at for at in range(out.num_columns) if at not in place.values()]
    columns = [out.column(place[name]) for name in fold.key] + [out.column(at) for at in others]
    return pa.table(columns, names=[*fold.key, *names])


def folded_schema(schema: pa.Schema, fold: Fold) -> pa.Schema:
    """What ``folded`` gives for rows of a schema."""
    return folded(schema.empty_table(), fold).schema


def can_be_key(kind: pa.DataType) -> bool:
    """Whether equal keys are equal to Spark and to Arrow alike."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def can_be_folded(schema: pa.Schema, key: Sequence[str], columns: Sequence[FoldColumn]) -> bool:
    """Whether rows of a schema can be folded so, with Spark's own answer."""
    if not key or not columns or not all(can_be_key(schema.field(name).type) for name in key):
        return False
    for column in columns:
        if not column.column:
            continue
        kind = _type(column.kind) if column.kind else schema.field(column.column).type
        whole = pa.types.is_integer(kind) and kind.bit_width == 64
        if column.how == "sum" and not (whole or pa.types.is_float64(kind)):
            return False
        if column.how in ("min", "max") and not can_be_key(kind):
            return False
    return True


def _type(name: str) -> pa.DataType:
    return {"int64": pa.int64(), "double": pa.float64()}[name]


def _check_sum(column: FoldColumn, values: pa.ChunkedArray) -> None:
    """Arrow's sums wrap around silently, where Spark's raise an error."""
    if not pa.types.is_integer(values.type) or not len(values):
        return
    ends = pc.min_max(values).as_py()
    most = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
    if most * len(values) >= _LARGEST:
        raise BadRowsError(
            f"A sum of the column {column.column!r} may not fit into 64 bits.",
            why=f"There are {len(values)} rows in an epoch with values up to {most}.",
            do="Cast the column to double, or let fewer rows be in an epoch.",
        )
