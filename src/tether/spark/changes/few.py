"""Corrections of few rows, made in the driver, because Spark's joins would dominate their cost.

The changes are those of :mod:`tether.spark.changes.correction`. Where a key has several rows, others of
them may be paired: any order is as right as another.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as t

from tether.spark.changes.columns import (
    AFTER,
    BEFORE,
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_VERSION,
    DELETE,
    EPOCH,
    FIDELITY,
    INSERT,
    STABILITY,
    Mark,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

FEW = 20_000
"""Rows of an epoch, tentative and stable ones together, that the driver compares."""

_PLAIN = (
    t.NumericType,
    t.StringType,
    t.BooleanType,
    t.BinaryType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)


class _Change(NamedTuple):
    row: int
    change: str
    stability: str


def can_compare(rows: DataFrame) -> bool:
    """Whether all columns are of types that go through Arrow and back as they are."""
    return all(isinstance(field.dataType, _PLAIN) for field in rows.schema.fields)


def corrected_few(
    sides: tuple[pa.Table, pa.Table], like: DataFrame, epoch: int, mark: Mark, key: Sequence[str]
) -> DataFrame:
    """The changes from a tentative answer of an epoch to the stable one, in the driver's memory.

    Args:
        sides: The rows that were given, and those that should have been.
        like: A DataFrame with the columns of both.
        epoch: The epoch that both speak of.
        mark: Of the stable rows.
        key: Columns that say which row replaces which; if there are none, no row does.
    """
    both = pa.concat_tables(sides)
    changes = list(_changes(both, sides[0].num_rows, key))
    table = both.take(pa.array([one.row for one in changes], pa.int64()))
    values: dict[str, list[Any]] = {
        CHANGE_TYPE: [one.change for one in changes],
        COMMIT_VERSION: [mark.version] * len(changes),
        STABILITY: [one.stability for one in changes],
        EPOCH: [epoch] * len(changes),
        FIDELITY: [mark.fidelity] * len(changes),
    }
    schema = t.StructType(list(like.schema.fields))
    for name, kind in CHANGE_COLUMNS.items():
        of_spark, of_arrow = _TYPES[kind]
        schema = schema.add(name, of_spark)
        table = table.append_column(name, pa.array(values[name], of_arrow))
    return like.sparkSession.createDataFrame(table, schema)


_TYPES = {
    "string": (t.StringType(), pa.string()),
    "bigint": (t.LongType(), pa.int64()),
    "double": (t.DoubleType(), pa.float64()),
}


def _changes(both: pa.Table, tentative: int, key: Sequence[str]) -> Iterator[_Change]:
    """The changes, given the rows of both sides and how many tentative ones come first."""
    if not key:
        for row in range(both.num_rows):
            yield _Change(row, DELETE if row < tentative else INSERT, "stable")
        return
    names = zip(*(map(_same, both[name].to_pylist()) for name in key), strict=True)
    by_key: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {}
    for row, name in enumerate(names):
        by_key.setdefault(name, ([], []))[row >= tentative].append(row)
    for old, new in by_key.values():
        if len(old) > 1 or len(new) > 1:  # the same pairs if the epoch is given again
            old.sort(key=lambda row: repr(both.slice(row, 1).to_pylist()))
            new.sort(key=lambda row: repr(both.slice(row, 1).to_pylist()))
        for before, after in zip_longest(old, new):
            if before is None:
                yield _Change(after, INSERT, "stable")
            elif after is None:
                yield _Change(before, DELETE, "stable")
            else:
                yield _Change(before, BEFORE, "tentative")
                yield _Change(after, AFTER, "stable")


def _same(value: Any) -> Any:
    """A value of a key, such that those which Spark takes for equal are."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
