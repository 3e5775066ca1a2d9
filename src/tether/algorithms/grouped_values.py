"""How often each value came, for each key of a ``groupBy``: what quantiles and the most frequent need.

Counts are only ever added up, so an error that a loss leaves behind never grows: after failures the
counts of all values together are wrong by at most the bound. Values of quantiles are cut to a few
significant bits before they are counted, which bounds how many there can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StructField, StructType

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column

    from tether.state.slot import SlotState
    from tether.state.table import Table

VALUE = "__value"
_FRACTION_BITS = 52


@dataclass(frozen=True)
class ValuesPart:
    """The values of a column, counted for each key, and what is answered from the counts.

    Args:
        table: Name of the table of counts.
        name: Column with the values of a key in an epoch, as a list of structs with the field ``v``.
        combined: By what Spark collects them.
        kind: Type of a value.
        answer: Column with the answer.
        fractions: Of all values, for quantiles; empty for the most frequent values.
        bits: Significant bits, after the first, to which values are cut.
        most: How many of the most frequent values are wanted.
    """

    table: str
    name: str
    combined: Column
    kind: DataType
    answer: str
    fractions: tuple[float, ...] = ()
    bits: int = _FRACTION_BITS
    most: int = 0

    @property
    def field(self) -> StructField:
        """The answer's column: the quantiles in order, or the most frequent values with counts."""
        if self.fractions:
            return StructField(self.answer, ArrayType(DoubleType()))
        entry = StructType([StructField("item", self.kind), StructField("count", LongType())])
        return StructField(self.answer, ArrayType(entry))

    def parameters(self) -> list[Any]:
        """What gives the stored counts their meaning."""
        return [self.table, self.kind.simpleString(), self.bits]

    def make(self, state: SlotState, keys: dict[str, pa.DataType], divergence: str) -> Table:
        """The table of counts."""
        of_value = to_arrow_type(self.kind, timezone="UTC")
        return state.table(
            self.table,
            {**keys, VALUE: of_value},
            {"n": "int64"},
            divergence=divergence,
            weights={"n": 1.0},
        )

    def count(self, counts: Table, keys: pa.RecordBatch, lists: pa.Array) -> None:
        """Count the values of an epoch."""
        parents = pc.list_parent_indices(lists)
        values = pc.struct_field(pc.list_flatten(lists), "v")
        if self.fractions:
            cut = cut_to_bits(values.to_numpy(zero_copy_only=False), self.bits)
            values = pa.array(cut)
        if len(values):
            counts.add(keys.take(parents).append_column(VALUE, values), n=1)

    def answers(self, counts: Table, parts: Table, rows: NDArray[np.int64]) -> pa.Array:
        """What is asked of the values, for these rows of the table of keys."""
        of_row, values, numbers = _counted(counts, parts, rows)
        if self.fractions:
            return _quantiles(of_row, values, numbers, len(rows), self.fractions)
        return _most_frequent(of_row, values, numbers, len(rows), self.most)


def cut_to_bits(values: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """Numbers without their last digits: nearer to 0 by less than one part in 2^bits.

    Whole numbers below 2^(bits + 1) stay as they are. There is one zero and one NaN.

    Example:
        >>> cut_to_bits(np.array([9.0, -17.0, 0.3, -0.0, np.inf]), 3).tolist()
        [9.0, -16.0, 0.28125, 0.0, inf]
    """
    plain = np.array(values, np.float64)
    mask = np.int64(-1) << np.int64(_FRACTION_BITS - bits)
    cut = (plain.view(np.int64) & mask).view(np.float64) + 0.0
    return np.where(np.isnan(plain), np.nan, cut)


def bits_for(accuracy: float) -> int:
    """Bits by which a value is kept as exactly as one part in ``accuracy``.

    Example:
        >>> bits_for(10_000), bits_for(1)
        (14, 1)
    """
    return min(_FRACTION_BITS, max(1, math.ceil(math.log2(accuracy))))


def _counted(
    counts: Table, parts: Table, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64]]:
    """Which of the rows each value belongs to, the values, and how often each came."""
    place = np.full(len(parts) + 1, -1, np.int64)  # the last is that of keys that are not there
    place[rows] = np.arange(len(rows))
    names = parts.key_schema.names
    found: list[tuple[NDArray[np.int64], pa.Array, NDArray[np.int64]]] = []
    for batch in counts.batches(65_536):
        if not batch.num_rows:
            continue
        of_row = place[parts.get(batch.select(names)).rows]
        numbers = batch["n"].to_numpy()
        wanted = np.flatnonzero((of_row >= 0) & (numbers > 0))
        if len(wanted):
            found.append((of_row[wanted], batch[VALUE].take(pa.array(wanted)), numbers[wanted]))
    if not found:
        nothing = np.zeros(0, np.int64)
        return nothing, pa.array([], counts.key_schema.field(VALUE).type), nothing
    return (
        np.concatenate([one[0] for one in found]),
        pa.concat_arrays([one[1] for one in found]),
        np.concatenate([one[2] for one in found]),
    )


def _quantiles(
    of_row: NDArray[np.int64],
    values: pa.Array,
    numbers: NDArray[np.int64],
    rows: int,
    fractions: tuple[float, ...],
) -> pa.Array:
    """The smallest value that a given number of a row's values do not exceed; null without values."""
    numbers_in_order = values.to_numpy(zero_copy_only=False)
    order = np.lexsort((numbers_in_order, of_row))  # NaN comes last, as in Spark
    of_row, sorted_values, numbers = of_row[order], numbers_in_order[order], numbers[order]
    upto = np.cumsum(numbers)
    starts = np.searchsorted(of_row, np.arange(rows))
    ends = np.searchsorted(of_row, np.arange(rows), side="right")
    known = ends > starts
    before = np.where(starts > 0, upto[starts - 1], 0) if len(upto) else np.zeros(rows, np.int64)
    sizes = np.where(known, upto[ends - 1] - before, 0) if len(upto) else before
    answers = np.zeros((rows, len(fractions)))
    for at, fraction in enumerate(fractions):
        rank = np.maximum(1, np.ceil(fraction * sizes)).astype(np.int64)
        where = np.searchsorted(upto, (before + rank)[known])
        answers[known, at] = sorted_values[where]
    width = len(fractions)
    lists = np.where(known, width, 0)
    offsets = np.concatenate([[0], np.cumsum(lists)]).astype(np.int32)
    flat = pa.array(answers[known].ravel())
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~known))


def _most_frequent(
    of_row: NDArray[np.int64], values: pa.Array, numbers: NDArray[np.int64], rows: int, most: int
) -> pa.Array:
    """The most frequent values of each row; of values as frequent, the smaller ones come first."""
    table = pa.table({"row": of_row, "count": numbers, "item": values})
    order = [("row", "ascending"), ("count", "descending"), ("item", "ascending")]
    table = table.sort_by(order).combine_chunks()
    sorted_rows = table["row"].to_numpy()
    rank = np.arange(len(sorted_rows)) - np.searchsorted(sorted_rows, sorted_rows)
    table = table.filter(pa.array(rank < most))
    lists = np.bincount(table["row"].to_numpy(), minlength=rows)
    offsets = np.concatenate([[0], np.cumsum(lists)]).astype(np.int32)
    entries = pa.StructArray.from_arrays(
        [_one_chunk(table["item"]), _one_chunk(table["count"])], names=["item", "count"]
    )
    return pa.ListArray.from_arrays(pa.array(offsets), entries)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
