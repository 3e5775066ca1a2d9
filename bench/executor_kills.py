"""SIGKILL of an executor under a running query: how long until an epoch with its slots is committed.

The query is idle when the executor dies; right after, the next epoch's rows arrive. So the time from
the kill to that epoch's commit holds all that the loss costs: Spark's detection, a place for the lost
slots (another executor or a new one), the restore of their state, the epoch itself.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import InheritableThread

import tether
from bench.counts import ROCKSDB
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.cluster import executors_of, linked_home
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.processes import kill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SLOTS = 2
ROWS = 2_000
"""Rows of an epoch once all keys are in."""
LOADING_ROWS = 2_000_000
"""Most rows of an epoch that brings keys in."""
MEMORY_MB = 1024
WARM_UP = 3
SCHEMA = "k long, v long"


@dataclass
class Outage:
    """One kill, in seconds from it unless said otherwise."""

    detected: float
    """The driver has removed the executor."""
    replaced: float
    """A new one has registered; often after the epoch was committed, which does not wait for it."""
    committed: float
    """The first epoch with the lost slots is committed."""
    usual_epoch: float
    """Length of an epoch of the same size without a failure."""
    restore: dict[str, float] = field(default_factory=dict)
    """Our own part, by phase; empty for other contenders."""

    @property
    def own(self) -> float:
        """Seconds of our own part."""
        return sum(self.restore.values())


def open_cluster(
    scratch: Path, *, locality_wait: str, cores: int = 1, conf: dict[str, str] | None = None
) -> SparkSession:
    """Two executors on loopback, as processes of their own.

    Args:
        scratch: Where executors write.
        locality_wait: How long Spark holds out for a task's preferred executor. Ours pins slots by it;
            for Spark's own stores a short one makes the pause after a kill shorter.
        cores: Tasks that an executor runs at once.
        conf: More settings.
    """
    os.environ["SPARK_HOME"] = str(linked_home(scratch / "spark-home"))
    conf = {
        **(conf or {}),
        "spark.executor.memory": f"{MEMORY_MB}m",
        "spark.locality.wait": locality_wait,
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    return open_session(f"local-cluster[{SLOTS},{cores},{MEMORY_MB}]", app="recovery", conf=conf)


class Target:
    """A query over keys that are all there, fed one epoch at a time.

    Args:
        session: On a cluster.
        work: A directory for it.
        keys: Keys of each slot.
        seed: Of the rows.
        ours: Whether it is a query of ours, or Spark's own.
    """

    def __init__(
        self, session: SparkSession, work: Path, keys: int, seed: int, *, ours: bool
    ) -> None:
        self._ours = ours
        self._session, self._work, self._all = session, work, keys * SLOTS
        self._random = np.random.default_rng(seed)
        self._written = 0
        self._sent = 0
        (work / "in").mkdir(parents=True)
        self.query: Any = None

    def start(self) -> None:
        """Start, or go on where it stopped."""
        if self._ours:
            self._start_tether()
        else:
            self._start_spark()

    def _start_tether(self) -> None:
        """Counts and sums in resident state, with a bound of a hundredth of what all keys hold."""
        budget = max(1_000.0, 0.01 * self._all)
        self.query = (
            tether.stream(self._rows())
            .apply(KeyedAggregate(["v"], emit="changed"), key="k", parallelism=SLOTS)
            .start(
                tolerance=tether.Approximate(max_state_error=budget),
                backup=str(self._work / "backup"),
                checkpoint=str(self._work / "checkpoint"),
                arena_scope="executor",
            )
        )

    def _start_spark(self) -> None:
        """The same as Spark's own stateful query."""
        writer = self._rows().groupBy("k").agg({"*": "count", "v": "sum"}).writeStream
        writer = writer.outputMode("update").format("noop")
        self.query = writer.option("checkpointLocation", str(self._work / "checkpoint")).start()

    def _rows(self) -> Any:
        return read_epochs(self._session, self._work / "in", SCHEMA)

    def load(self) -> None:
        """Bring every key in, then a few small epochs."""
        for first in range(0, self._all, LOADING_ROWS):
            last = min(self._all, first + LOADING_ROWS)
            self._send(np.arange(first, last))
            self.query.processAllAvailable()
        for _ in range(WARM_UP):
            self.epoch()

    def epoch(self) -> float:
        """Run one small epoch; its seconds, from the arrival of its rows to its commit."""
        began = time.monotonic()
        self._send(self._random.integers(0, self._all, ROWS))
        self.query.processAllAvailable()
        return time.monotonic() - began

    def _send(self, keys: Any) -> None:
        rows = pa.table({"k": keys.astype(np.int64), "v": np.ones(len(keys), np.int64)})
        self._written += write_epochs(self._work / "in", [rows], first=self._written)
        self._sent += len(keys)

    def outage(self) -> Outage:
        """Kill an executor, and run an epoch."""
        usual = min(self.epoch() for _ in range(2))
        told = len(self.query.story()) if self._ours else 0
        watch = _Watch(self._session, len(executors()))
        victim = self._victim()
        began = time.monotonic()
        kill(victim)
        watch.begin()
        self.epoch()
        committed = time.monotonic() - began
        watch.join(60)
        restore: dict[str, float] = {}
        if self._ours:
            events = [e for e in self.query.story()[told:] if e.what == "recovery"]
            # The slots of one executor are restored one after the other, by its one core.
            for event in events:
                for phase, seconds in event.detail["seconds"].items():
                    restore[phase] = restore.get(phase, 0.0) + seconds
            if not events:
                raise AssertionError("no slot was on the executor that was killed")
        return Outage(watch.gone - began, watch.back - began, committed, usual, restore)

    def _victim(self) -> int:
        """An executor that holds state."""
        if self._ours:  # a slot tells where it is, by the executor's process id
            return int(self.query.slots()[0]["executor"].split(":")[1])
        return executors()[0]

    def restart(self) -> None:
        """Stop and start, so that slots are spread over all executors again."""
        self.query.stop()
        self.start()
        for _ in range(WARM_UP):
            self.epoch()

    def rows_counted(self) -> tuple[int, int]:
        """Rows in the answer, by its own count, and rows that were sent."""
        table = self.query.table("totals")
        return int(table.groupBy().sum("count").collect()[0][0]), self._sent


class _Watch:
    """Sees when the driver misses an executor, and when it has a new one."""

    def __init__(self, session: SparkSession, before: int) -> None:
        self._context = session.sparkContext._jsc.sc()
        self._before = before
        self.gone = self.back = float("nan")
        self._thread = InheritableThread(target=self._look, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _look(self) -> None:
        while self._registered() >= self._before:
            time.sleep(0.005)
        self.gone = time.monotonic()
        while self._registered() < self._before:
            time.sleep(0.02)
        self.back = time.monotonic()

    def _registered(self) -> int:
        # The driver itself is one of them.
        return int(self._context.getExecutorMemoryStatus().size()) - 1


def executors() -> list[int]:
    """Process ids of this driver's executors."""
    return sorted(executors_of(os.getpid()))


def outages(target: Target, number: int) -> Iterator[Outage]:
    """Kill again and again, each time with slots on all executors."""
    for _ in range(number):
        target.restart()
        yield target.outage()
