"""Keyed counts and sums: the everyday stateful query, with bounded error."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
)

from tether.core.errors import BadValueError
from tether.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column

    from tether.output import Output
    from tether.state.slot import SlotState

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BROKEN = (FloatType, DoubleType)
_ROWS_OUT = 65_536


class KeyedAggregate(Operator):
    """Counts and sums per key, as ``groupBy(key).agg(count(*), sum(column), …)``.

    Spark folds each epoch's rows per key, so a slot sees every key once an epoch. Answers equal
    Spark's own, bit for bit for whole numbers; nulls are treated as Spark treats them (a null key is
    a key; a sum over nothing but nulls is null).

    After failures every count and sum may be too small (or, with negative values, too large), all
    of them together by no more than the bound (``l1``), or each by no more than the bound (``max``).

    Args:
        sums: Columns to sum; or a mapping from the output's name to the column.
        count: Output name of the count of rows; None for no count.
        emit: "changed": keys touched in the epoch, with their new values. "all": every key.
        divergence: "l1": errors of all keys and columns add up; "l2"; "max": the worst one counts.
        weights: What an error of one unit counts, by output name; 1 by default. A sum of bytes and a
            count of rows hardly weigh the same.
        not_numbers: What to do with NaN and infinities among values to sum, of which a sum could never
            get rid again. "refuse" stops the query. "skip" leaves such a value out of its sum, as a
            null is, and counts it in a further output, ``skipped(column)``. To keep such rows aside,
            see ``Stream.set_aside``.

    Example:
        >>> KeyedAggregate(sums=["bytes"]).name
        'keyed_aggregate'
    """

    disjoint = True  # the table's key is the key that rows are routed by

    def __init__(
        self,
        sums: Sequence[str] | Mapping[str, str] = (),
        *,
        count: str | None = "count",
        emit: Literal["changed", "all"] = "changed",
        divergence: str = "l1",
        weights: Mapping[str, float] | None = None,
        not_numbers: Literal["refuse", "skip"] = "refuse",
    ) -> None:
        names = sums if isinstance(sums, dict) else {f"sum({column})": column for column in sums}
        if not names and count is None:
            raise BadValueError(
                "The aggregate has nothing to compute.", do="Give columns to sum, or name a count."
            )
        if emit not in ("changed", "all"):
            raise BadValueError(f"emit={emit!r} is not known.", do='Use "changed" or "all".')
        if not_numbers not in ("refuse", "skip"):
            raise BadValueError(
                f"not_numbers={not_numbers!r} is not known.", do='Use "refuse" or "skip".'
            )
        self._sums, self._count, self._emit = dict(names), count, emit
        self._skips = not_numbers == "skip"
        self._divergence = divergence
        self._weights = dict(weights or {})
        outputs = [*([count] if count else []), *self._sums]
        outputs += [_skipped(out) for out in self._sums] if self._skips else []
        unknown = sorted(set(self._weights) - set(outputs))
        if unknown:
            raise BadValueError(
                f"There is no output {unknown} to weigh.", why=f"The outputs are {outputs}."
            )

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Work out the types of keys and sums."""
        if not key:
            raise BadValueError("A keyed aggregate needs a key.", do="Pass key=[...] to apply().")
        clash = sorted({*self._sums, self._count} & set(key))
        if clash:
            raise BadValueError(
                f"The outputs {clash} have the names of key columns.",
                do="Give the sums other names: sums={'total': 'column'}.",
            )
        self._keys = {name: to_arrow_type(schema[name].dataType, timezone="UTC") for name in key}
        self._types = {out: _sum_type(schema, column) for out, column in self._sums.items()}
        # Sums of broken numbers depend on the order of the rows, in their last digits.
        self.repeats = all(isinstance(kind, LongType) for kind in self._types.values())
        self.merges = self.repeats
        floating = [out for out, kind in self._types.items() if isinstance(kind, DoubleType)]
        self._skipping = floating if self._skips else []
        self._nullable = [
            out
            for out, column in self._sums.items()
            if schema[column].nullable or out in self._skipping
        ]
        fields = [schema[name] for name in key]
        if self._count is not None:
            fields.append(StructField(self._count, LongType(), nullable=False))
        fields += [StructField(out, kind) for out, kind in self._types.items()]
        fields += [StructField(_skipped(out), LongType(), nullable=False) for out in self._skipping]
        self.output = StructType(fields)

    def parameters(self) -> Mapping[str, object]:
        """What gives the stored numbers their meaning."""
        told = {"sums": self._sums, "count": self._count, "divergence": self._divergence}
        return {**told, "not_numbers": "skip"} if self._skips else told

    def combine(self) -> list[Column] | None:
        """Let Spark fold an epoch's rows: one row per key reaches the slot."""
        counts = [F.count(F.lit(1)).alias(self._count)] if self._count is not None else []
        values = {
            out: F.col(f"`{column}`").cast(self._types[out]) for out, column in self._sums.items()
        }
        skipped = {out: _is_no_number(values[out]) for out in self._skipping}
        for out, condition in skipped.items():
            values[out] = F.when(~condition, values[out])
        sums = [F.sum(value).alias(out) for out, value in values.items()]
        return counts + sums + [F.count_if(no).alias(_skipped(out)) for out, no in skipped.items()]

    def setup(self, state: SlotState) -> None:
        """One row per key: the count, the sums, and which sums have seen a value."""
        values = {self._count: "int64"} if self._count is not None else {}
        for out, kind in self._types.items():
            values[out] = "int64" if isinstance(kind, LongType) else "float64"
        values |= {_skipped(out): "int64" for out in self._skipping}
        values |= {_seen(out): "uint8" for out in self._nullable}
        self._table = state.table(
            "totals",
            self._keys,
            values,
            divergence=self._divergence,
            weights=self._weights,
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add an epoch's totals per key to the totals so far."""
        del out
        added = {name: pc.fill_null(batch[name], 0) for name in self._sums}
        if self._count is not None:
            added[self._count] = batch[self._count]
        added |= {_skipped(name): batch[_skipped(name)] for name in self._skipping}
        added |= {_seen(name): pc.is_valid(batch[name]) for name in self._nullable}
        self._table.add(batch.select(list(self._keys)), unique=True, **added)

    def on_epoch_end(self, out: Output) -> None:
        """Emit what changed, or everything."""
        if self._emit == "all":
            batches = self._table.batches(_ROWS_OUT)
        else:
            rows = self._table.changed()
            cuts = range(0, len(rows), _ROWS_OUT)
            batches = (self._table.rows_to_batch(rows[cut : cut + _ROWS_OUT]) for cut in cuts)
        for batch in batches:
            out.emit(self._shown(batch))

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Sums that have seen no value are null, as in SQL; the flags themselves stay inside."""
        columns = {name: batch[name] for name in batch.schema.names}
        for name in self._nullable:
            seen = pc.not_equal(columns.pop(_seen(name)), 0)
            columns[name] = pc.if_else(seen, columns[name], pa.scalar(None, columns[name].type))
        return pa.RecordBatch.from_pydict(columns)


def _seen(out: str) -> str:
    return f"{out} seen"


def _skipped(out: str) -> str:
    return f"skipped({out.removeprefix('sum(').removesuffix(')')})"


def _is_no_number(value: Column) -> Column:
    """Whether a value would make a sum useless: NaN or infinite. Null is neither."""
    return F.coalesce(F.isnan(value) | (F.abs(value) == math.inf), F.lit(False))


def _sum_type(schema: StructType, column: str) -> DataType:
    """Spark's type for a sum: whole numbers add up to long, others to double."""
    if column not in schema.names:
        raise BadValueError(
            f"The column {column!r} to sum is not in the input.",
            why=f"The input has the columns {schema.names}.",
        )
    kind = schema[column].dataType
    if isinstance(kind, _WHOLE):
        return LongType()
    if isinstance(kind, _BROKEN):
        return DoubleType()
    raise BadValueError(
        f"The column {column!r} of type {kind.simpleString()} cannot be summed.",
        why="A sum is kept as a 64-bit whole or floating-point number.",
        do="Cast it to bigint or double first.",
    )
