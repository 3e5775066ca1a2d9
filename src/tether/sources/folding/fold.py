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

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 2**63
# Rows that came over the wire need not lie as Arrow's own allocations do; it asks how to take that.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


class CannotFoldError(TetherError):
    """Rows for which a fold in Arrow would not give Spark's answer; where it can, Spark folds them."""

    code = "cannot-fold"


class FoldColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One aggregate.

    Args:
        name: Of the result.
        how: What is computed; "count" without a column counts rows.
        column: Of the input.
        kind: Arrow type that the column is cast to first, by name: "int64" or "double"; "": as it is.
        whole: Whether nulls and numbers below zero are refused.
    """

    name: str
    how: Literal["sum", "count", "min", "max"]
    column: str = ""
    kind: str = ""
    whole: bool = False


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
        CannotFoldError: A sum of whole numbers passes 64 bits, or a column has what it must not have.
    """
    asked: list[tuple[str, str, object]] = []
    inputs = {name: rows[name] for name in fold.key}
    wide: list[int] = []
    for at, column in enumerate(fold.columns):
        if not column.column:
            asked.append((fold.key[0], "count", pc.CountOptions(mode="all")))
            continue
        values = rows[column.column]
        if column.kind:
            values = values.cast(_type(column.kind), safe=False)  # to the nearest, as Spark does
        if column.whole:
            _check_whole(column, values)
        if column.how == "sum" and _may_overflow(values):
            values = values.cast(pa.decimal128(19))
            wide.append(at)
        inputs[f"\0{at}"] = values
        asked.append((f"\0{at}", column.how, None))
    out = pa.table(inputs).group_by(list(fold.key), use_threads=False).aggregate(asked)
    names = [column.name for column in fold.columns]
    # pyarrow gives the key's columns first or last, by its version.
    place = {name: out.schema.get_field_index(name) for name in fold.key}
    others = [at for at in range(out.num_columns) if at not in place.values()]
    results = [out.column(at) for at in others]
    for at in wide:
        results[at] = _narrowed(fold.columns[at], results[at])
    return pa.table(
        [out.column(place[name]) for name in fold.key] + results, names=[*fold.key, *names]
    )


def merging(fold: Fold) -> Fold:
    """What folds rows further that are folded already."""
    return Fold(
        key=fold.key,
        columns=tuple(
            FoldColumn(name=one.name, how="sum" if one.how == "count" else one.how, column=one.name)
            for one in fold.columns
        ),
    )


def folded_schema(schema: pa.Schema, fold: Fold) -> pa.Schema:
    """What ``folded`` gives for rows of a schema."""
    return folded(schema.empty_table(), fold).schema


def can_be_key(kind: pa.DataType) -> bool:
    """Whether Spark and Arrow agree which keys are equal."""
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
    return all(
        not column.column or _can_be_column(schema.field(column.column).type, column)
        for column in columns
    )


def _can_be_column(kind: pa.DataType, column: FoldColumn) -> bool:
    whole, broken = pa.types.is_signed_integer(kind), pa.types.is_floating(kind)
    if column.kind and not (whole or (broken and column.kind == "double")):
        return False  # casts of text, and casts that lose digits, are left to Spark
    if column.how == "count":
        return True
    if column.how == "sum":
        return (whole or broken) and not pa.types.is_float16(kind)
    return can_be_key(_type(column.kind) if column.kind else kind)


def _type(name: str) -> pa.DataType:
    return {"int64": pa.int64(), "double": pa.float64()}[name]


def _may_overflow(values: pa.ChunkedArray) -> bool:
    """Whether a sum of all of them might pass 64 bits, where Arrow's would wrap around silently."""
    if not pa.types.is_integer(values.type) or not len(values):
        return False
    ends = pc.min_max(values).as_py()
    most = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
    return bool(most * len(values) >= _LARGEST)


def _narrowed(column: FoldColumn, sums: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return sums.cast(pa.int64())
    except pa.ArrowInvalid:
        raise CannotFoldError(
            f"A sum of the column {column.column!r} does not fit into 64 bits.",
            do="Cast the column to double, or let fewer rows be in an epoch.",
        ) from None


def _check_whole(column: FoldColumn, values: pa.ChunkedArray) -> None:
    least = pc.min(values).as_py() if len(values) else 0
    if values.null_count or least < 0:
        raise CannotFoldError(f"The column {column.column!r} has nulls or numbers below zero.")
