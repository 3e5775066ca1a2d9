"""Slots stay where they are: a cached one-row-per-slot anchor table that Spark's scheduler follows.

An inner join with a cached table makes the cached block's executor the preferred place of the task.
When that executor dies its blocks die with it, and Spark builds them again elsewhere: the slot moves,
finds no resident state there, and recovers. Public DataFrame API only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tether.spark.graph.plan import SLOT
from tether.spark.places.spreading import live_executors
from tether.state.executor import executor_name, own_executor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SETTLE_SECONDS = 1.5
"""Seconds without a change in the number of executors after which all are considered registered."""

SPREAD_SECONDS = 0.15
"""How long each anchor task lasts, so that one idle executor cannot take all of them."""


def has_one_executor(session: SparkSession) -> bool:
    """Whether the driver is the only executor, so that there is nothing to pin to."""
    master = session.conf.get("spark.master") or ""
    return master == "local" or master.startswith("local[")


class Anchor:
    """The anchor table of one operator's slots.

    Args:
        session: Session of the streaming query's epochs.
        slots: Number of slots.
        name: Anchors of one name and number are the same, in whatever session they are asked for; so
            two queries, or a query and its twin, need names of their own.
        patience: Most seconds to wait for executors to register before the slots are placed; 0 where
            they are placed already, or cannot wait.
    """

    def __init__(
        self, session: SparkSession, slots: int, name: str, patience: float = 20.0
    ) -> None:
        if patience:
            await_executors(session, patience)
        # The delay is in Java: when an executor has died, its anchors are computed again within the
        # slots' tasks, where a Python function would have to wait for a second Python worker.
        linger = (
            f"reflect('java.lang.Thread', 'sleep', {round(1000 * SPREAD_SECONDS)}L) AS lingered"
        )
        table = (
            session.range(0, slots, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(slots, SLOT)
            .selectExpr(SLOT, linger, f"'{name}' AS anchor")
        )
        self._table = table.cache()
        self._table.count()

    def pin(self, rows: DataFrame) -> DataFrame:
        """The same rows, each partition now preferring the executor of its slot."""
        return self.alone().hint("shuffle_hash").join(rows, SLOT)

    def alone(self) -> DataFrame:
        """A row for each slot and nothing else, where the slots are."""
        return self._table.select(SLOT)

    def places(self) -> list[str]:
        """The executor of each slot, as it is now."""
        found = self.alone().mapInArrow(_where, "slot int, executor string").collect()
        at = {row.slot: row.executor for row in found}
        return [at[slot] for slot in range(len(at))]

    def release(self) -> None:
        """Forget the placement."""
        self._table.unpersist()


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - in the executor

    name = executor_name(own_executor())
    for batch in batches:
        names = pa.array([name] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([batch.column(0), names], ["slot", "executor"])


def await_executors(session: SparkSession, patience: float) -> None:
    """Wait until executors stop joining: slots placed earlier would all sit on the first one."""
    context = session.sparkContext
    deadline = time.monotonic() + patience
    # Not defaultParallelism, which is 2 even with one core, or none yet.
    executors, since = live_executors(context), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < SETTLE_SECONDS:
        time.sleep(0.1)
        now = live_executors(context)
        if now != executors:
            executors, since = now, time.monotonic()
