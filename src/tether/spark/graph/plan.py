"""How an epoch's rows reach their slots: partition i of the shuffled rows is slot i, always.

The slot of a row is ``pmod(hash(key), slots)`` with Spark's own hash, which is also how Spark's
``groupBy`` places keys. So where Spark pre-aggregates on a single executor, its own shuffle already
delivers to the slots, and nothing is shuffled twice.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from tether.core.errors import BadValueError
from tether.sources.folding import parcels, spark_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from tether.protocols.copies import Seats
    from tether.spark.folding.folding import FoldedRows, Parcel
    from tether.spark.places.pinning import Anchor

SLOT = parcels.SLOT
"""Column that names a row's slot; the task checks it against the partition that it runs on."""

_AT = "__tether_at"
"""Column that brings answers back into the order of what was asked."""


class SlotRows(NamedTuple):
    """The rows of an epoch on their way to the tasks of their slots."""

    frame: DataFrame
    """Its partition i is slot i, or seat i where there are copies."""
    parcels: Mapping[int, tuple[Parcel, ...]] | None = None
    """Rows of each slot that the driver has folded itself; then there are none in the frame."""


class EpochPlan:
    """Builds the DataFrame of one epoch whose partition i holds the rows of slot i.

    Args:
        key: Columns that say which rows belong together; empty: whole rows are spread by value.
        slots: Number of slots.
        combine: Aggregates by which Spark folds rows per key first, or None.
        anchor: Pins slots to executors; None where there is one executor.
        event_time: Column with the rows' event time; where rows are combined, its newest is kept.
        from_source: Whether the rows come from sources and steps alone. Their partitions may then
            be put together; those of an operator are its slots, and may not.
        folded: Reads and folds the rows of an epoch itself, where it can.
    """

    def __init__(
        self,
        key: list[str],
        slots: int,
        combine: list[Column] | None,
        anchor: Anchor | None,
        event_time: str | None = None,
        *,
        from_source: bool = False,
        folded: FoldedRows | None = None,
    ) -> None:
        if combine is not None and not key:
            raise BadValueError(
                "The operator asks Spark to combine rows per key, but no key was given.",
                do="Pass key=[...] to apply().",
            )
        if combine is not None and event_time is not None and event_time not in key:
            combine = [*combine, F.max(event_time).alias(event_time)]
        self._slots, self._combine, self._anchor = slots, combine, anchor
        self._folded = folded
        self._numbers: DataFrame | None = None
        self._seats = slots
        self._targets: Column | None = None
        self._in_order = False
        # Made once: every call that builds an expression is a dozen round trips to the JVM.
        self._key = [F.col(f"`{name}`") for name in key]
        self._everything, self._slot_column = F.col("*"), F.col(SLOT)
        self._slot_by: dict[tuple[str, ...], Column] = {}
        if key:
            self._slot_by[()] = self._slot_of(self._key)
        # One shuffle serves both groupBy and slots while Spark's partitioning is exactly ours.
        self._fused = combine is not None and anchor is None
        # One slot alone would read everything by itself; a shuffle lets all cores read.
        self._as_read = from_source and not key and anchor is None and slots > 1

    @property
    def folded(self) -> FoldedRows | None:
        """Reads and folds the rows of an epoch itself; None where Spark reads them."""
        return self._folded

    def unfold(self) -> bool:
        """From now on, let Spark read all rows; False if it does already."""
        did, self._folded = self._folded is not None, None
        return did

    def rows_by_slot(self, epoch_rows: DataFrame) -> SlotRows:
        """The epoch's rows, combined if asked, each in the partition of its slot."""
        folded = None if self._folded is None else self._folded.of(epoch_rows)
        if folded is None:
            return SlotRows(self._shuffled(epoch_rows))
        if isinstance(folded, dict):
            # A partition for each slot, without any shuffle; the same in every epoch of a placing.
            if self._numbers is None:
                self._numbers = epoch_rows.sparkSession.range(0, self._slots, 1, self._slots)
            return SlotRows(self._numbers, folded)
        return SlotRows(self._to_seats(folded))

    def _shuffled(self, rows: DataFrame) -> DataFrame:
        if self._as_read and _partitions(rows) >= self._slots:
            # Rows belong to no slot in particular: those that are read together stay together.
            rows = rows.coalesce(self._slots)
            return rows.select(self._everything, F.spark_partition_id().alias(SLOT))
        if self._combine is not None:
            rows = rows.groupBy(*self._key).agg(*self._combine, self._slot(rows))
        else:
            rows = rows.select(self._everything, self._slot(rows))
        return rows if self._fused else self._to_seats(rows)

    def _to_seats(self, rows: DataFrame) -> DataFrame:
        """Rows that name their slot, each in the partitions where it is run."""
        if self._targets is not None:
            seats = F.element_at(self._targets, F.col(SLOT) + 1)
            rows = rows.withColumn(SLOT, F.explode(seats))
        rows = rows.repartitionById(self._seats, self._slot_column)
        rows = rows if self._anchor is None else self._anchor.pin(rows)
        # All seats of a slot get the same rows: in the same order too, where that matters.
        return rows.sortWithinPartitions(*rows.columns) if self._in_order else rows

    def seat(self, seats: Seats, *, in_order: bool) -> None:
        """Send rows to every seat of their slot.

        Args:
            seats: The roles of seats.
            in_order: Whether the rows of an epoch are put into one order first.
        """
        self._seats, self._in_order = len(seats.runs), in_order
        slots = [F.array(*map(F.lit, each)) for each in seats.targets()]
        self._targets = F.array(*slots)

    def slots_of(
        self, session: SparkSession, keys: pa.RecordBatch, types: Mapping[str, str]
    ) -> NDArray[np.int64]:
        """The slot of each key, as rows of these types would have it, in the order of the keys."""
        with suppress(pa.ArrowException):  # Spark casts more types into each other
            here = spark_hash.slots_of(keys, types, self._slots)
            if here is not None:
                return here
        table = pa.Table.from_batches([keys]).append_column(_AT, pa.array(range(len(keys))))
        named = [F.col(f"`{name}`").cast(kind).alias(name) for name, kind in types.items()]
        rows = session.createDataFrame(table).select(*named, _AT)
        found = rows.select(_AT, self._slot_of(self._key)).toArrow().sort_by(_AT)
        slots: NDArray[np.int64] = np.asarray(found[SLOT].to_numpy(), np.int64)
        return slots

    def unfuse(self) -> bool:
        """Stop relying on any partitioning but our own shuffle's; False if groupBy's did not serve.

        Spark may leave that shuffle out where the input is partitioned by the key already, and
        then its partitions are not the slots.
        """
        was, self._fused = self._fused, False
        self._as_read = False
        return was

    def _slot(self, rows: DataFrame) -> Column:
        """The slot of each row, as a column."""
        columns = () if self._key else tuple(rows.columns)
        if columns not in self._slot_by:
            self._slot_by[columns] = self._slot_of([F.col(f"`{name}`") for name in columns])
        return self._slot_by[columns]

    def _slot_of(self, columns: list[Column]) -> Column:
        return F.pmod(F.hash(*columns), F.lit(self._slots)).cast("int").alias(SLOT)


def plan_of(session: SparkSession) -> Callable[..., Any]:
    """What makes the plans of a session's epochs: Spark's shuffle, unless it brings one of its own.

    See :mod:`tether.testing.inprocess`.
    """
    return getattr(session, "tether_plan", EpochPlan)


def _partitions(rows: DataFrame) -> int:
    count: int = rows.rdd.getNumPartitions()
    return count
