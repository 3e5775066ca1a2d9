"""A query whose executors are killed again and again, and what its sink should have been given."""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from bench.streams import epoch_times
from tether.algorithms.aggregate import KeyedAggregate
from tether.spark.places.spreading import live_executors
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.processes import command_of, descendants, kill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

SLOTS, KEYS = 2, 1_000
SCHEMA = "k long"
SECONDS = 240.0
"""Longest wait for anything."""
AFTERWARDS = 8
"""Epochs that are looked at once a new executor is there, where no twin runs."""
STEADY = 6
"""Epochs at the pace of the input before a kill."""
COURSE = ("tentative", "healing", "twin", "taken-over", "rewound")
"""Events of a story that are told with their times."""
POLICIES = {
    "rewind": tether.Barrier(90, mode="sync"),
    "meanwhile": tether.Barrier(90, mode="sync", meanwhile="stale"),
    "heal": tether.Approximate(1e6, heal=tether.Barrier(60)),
    "alone": tether.Approximate(1e6),
}


def epochs_of(number: int, rows: int, seed: int) -> list[pa.Table]:
    """Epochs of keys, all equally frequent."""
    random = np.random.default_rng(seed)
    return [pa.table({"k": random.integers(0, KEYS, rows)}) for _ in range(number)]


def start(session: SparkSession, work: Path, policy: Any, sink: Any) -> Any:
    """Start counting keys."""
    return (
        tether.stream(read_epochs(session, work / "in", SCHEMA))
        .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=SLOTS)
        .start(
            sink,
            tolerance=policy,
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_scope="executor",
            tentative=["k"] if sink is not None else False,
        )
    )


@dataclass
class Seen:
    """What a sink was given, and when."""

    at: list[float] = field(default_factory=list)
    stable: dict[int, dict[int, int]] = field(default_factory=dict)
    """By epoch: counts by key."""
    withdrawn: int = 0

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Rows of an epoch, with their kinds."""
        got = rows.select("k", "count", "_change_type", "_stability").collect()
        self.at.append(time.monotonic())
        if any(row["_stability"] == "tentative" and row["_change_type"] == "insert" for row in got):
            self.withdrawn += epoch in self.stable
            return
        put = [
            (row["k"], row["count"])
            for row in got
            if row["_stability"] == "stable"
            and row["_change_type"] in ("insert", "update_postimage")
        ]
        final = dict(put)
        twice = len(final) < len(put)
        self.withdrawn += twice or self.stable.get(epoch, final) != final
        self.stable[epoch] = final

    def take_back(self, epoch: int) -> None:
        """A rewind gives these again."""
        self.withdrawn += sum(at >= epoch for at in self.stable)
        self.stable = {at: rows for at, rows in self.stable.items() if at < epoch}


class Feed(threading.Thread):
    """Writes files of epochs: some at once, then one every so many seconds until it is stopped."""

    def __init__(self, folder: Path, rows: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._rows, self._random = folder, rows, np.random.default_rng(seed)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self.every: float | None = None
        """Seconds between two files; None: none are written."""
        self.keys: list[NDArray[np.int64]] = []

    def give(self, number: int = 1) -> None:
        """Write a number of files now."""
        with self._lock:
            for _ in range(number):
                keys = self._random.integers(0, KEYS, self._rows)
                write_epochs(self._folder, [pa.table({"k": keys})], first=len(self.keys))
                self.keys.append(keys)

    def run(self) -> None:
        """Until it is stopped."""
        while not self._ended.wait(self.every or 0.05):
            if self.every is not None:
                self.give()

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()
        self.join()

    def wrong(self, stable: dict[int, dict[int, int]], exact: Callable[[int], bool]) -> int:
        """Epochs whose stable rows are not those of a run without a failure."""
        counts, wrong = np.zeros(KEYS, np.int64), 0
        for epoch, keys in enumerate(self.keys):
            counts += np.bincount(keys, minlength=KEYS)
            right = {int(key): int(counts[key]) for key in np.unique(keys)}
            wrong += exact(epoch) and stable.get(epoch) != right
        return wrong


class Subject:
    """One query that is struck again and again.

    Args:
        session: On a cluster.
        directory: For all of its files.
        name: Which policy.
        seed: Of its rows.
        rows: In an epoch.
    """

    def __init__(
        self, session: SparkSession, directory: Path, name: str, seed: int, rows: int
    ) -> None:
        work = directory / f"{name}-{seed}"
        (work / "in").mkdir(parents=True)
        self._name, self._session, self._seen = name, session, Seen()
        self._exact = POLICIES[name].snapshots is not None
        self._feed = Feed(work / "in", rows, seed)
        self._feed.give()
        self.query = start(session, work, POLICIES[name], self._seen)
        self.query.processAllAvailable()
        self._feed.start()
        self._whole: list[tuple[int, int]] = []
        """Between these epochs nothing was missing: the first of them, the first not of them."""
        self._since = 0

    def strike(self, seed: int, behind: int) -> dict[str, Any]:
        """SIGKILL an executor with many epochs since the snapshot; the input goes on meanwhile."""
        query, seen, feed = self.query, self._seen, self._feed
        if self._exact:  # both contenders go back equally far, whatever came before
            query.snapshot()
            feed.give(2)
            query.processAllAvailable()
        feed.give(behind - STEADY)
        query.processAllAvailable()
        usual = statistics.median(epoch_times(query.recentProgress[-(behind - STEADY) :], 2)) / 1e3
        # The epochs of the last second are at the pace of the input, half of what is possible.
        feed.every, from_epoch = 2 * usual, len(feed.keys)
        _await(lambda: len(seen.stable) >= from_epoch + STEADY, query)
        before = statistics.median(epoch_times(query.recentProgress[-STEADY:], 0))
        first = query.lastProgress["batchId"]
        told = len(query.story())
        self._whole.append((self._since, max(seen.stable) + 1))
        _await(lambda: _living() >= SLOTS, query)  # the one that died last has been replaced
        slots = sorted(report["executor"] for report in query.slots())
        victim = int(slots[seed % len(slots)].split(":")[1])
        there = live_executors(self._session.sparkContext)
        struck, struck_at = time.monotonic(), time.time()
        kill(victim)
        if self._name == "alone":
            return self._look_on(there, first, before / 1e3)
        over = "rewound" if self._name == "rewind" else "taken-over"
        _await(lambda: any(event.what == over for event in query.story()[told:]), query)
        done = time.monotonic()
        reports = [one for one in query.recentProgress if one["batchId"] > first]
        given = len(feed.keys)
        _await(lambda: max(seen.stable, default=0) >= given - 1, query)
        feed.every = None
        caught_up = time.monotonic()
        query.processAllAvailable()
        story = query.story()[told:]
        (taken, *_) = [e for e in story if e.what == over]
        twins = [e.at for e in story if e.what == "twin"]
        # While the executor is being replaced nobody runs a twin, under a rewind just as here.
        replacing = [one for one in reports if not twins or _began(one) < twins[0]]
        beside = reports[len(replacing) :]
        came_at = {e.what: e.at - struck_at for e in story if e.what in COURSE}
        self._since = taken.epoch + 1
        after = [struck, *[at for at in seen.at if at >= struck]]
        return {
            "gap": max(late - early for early, late in pairwise(after)),
            "seconds": done - struck,
            "until_all_is_given": caught_up - struck,
            "gained": behind / (done - struck),
            "epoch_before": before / 1e3,
            "usual_epoch": usual,
            "twins": float(len(twins)),
            "beside_twin": [time / 1e3 for time in epoch_times(beside, 0)],
            "before_twin": [time / 1e3 for time in epoch_times(replacing, 0)],
            "course": came_at,
            "epochs_began": [_began(one) - struck_at for one in reports],
        }

    def _replaced(self, there: frozenset[str]) -> Callable[[], bool]:
        """Whether the driver knows another executor in place of one of those that were there."""

        def replaced() -> bool:
            now = live_executors(self._session.sparkContext)  # the driver is one of them
            return len(now) == len(there) and now != there

        return replaced

    def _look_on(self, there: frozenset[str], first: int, before: float) -> dict[str, Any]:
        """Epochs after a kill that nobody heals: before and after the executor is replaced."""
        query = self.query

        def since(epoch: int) -> list[dict[str, Any]]:
            return [one for one in query.recentProgress if one["batchId"] > epoch]

        _await(self._replaced(there), query)
        joined = query.lastProgress["batchId"]
        _await(lambda: len(since(joined)) >= AFTERWARDS, query)
        self._feed.every = None
        query.processAllAvailable()
        cold = [one for one in since(first) if one["batchId"] <= joined]
        return {
            "epoch_before": before,
            "before_twin": [time / 1e3 for time in epoch_times(cold, 0)],
            "beside_twin": [time / 1e3 for time in epoch_times(since(joined)[:AFTERWARDS], 0)],
        }

    def end(self) -> dict[str, float]:
        """Stop; what was wrong or withdrawn in all."""
        self._feed.stop()
        self.query.processAllAvailable()
        self.query.stop()
        whole = [*self._whole, (self._since, len(self._feed.keys))]

        def exact(epoch: int) -> bool:
            # What an approximate query gives between a loss and the take-over stands, within its bound.
            return self._exact or any(since <= epoch < until for since, until in whole)

        return {
            "wrong": float(self._feed.wrong(self._seen.stable, exact)),
            "withdrawn": float(self._seen.withdrawn) if self._name != "rewind" else 0.0,
            "epochs": float(len(self._feed.keys)),
            "spent": self.query.bound().spent,
        }


def _began(report: dict[str, Any]) -> float:
    """Unix seconds at which an epoch of Spark's began."""
    return datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()


def _living() -> int:
    """Executors of this process's cluster."""
    return sum("CoarseGrained" in command_of(pid) for pid in descendants(os.getpid()))


def _await(condition: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened in {SECONDS:.0f} s; {where(query)}")
        time.sleep(0.02)


def where(query: Any) -> str:
    """What a query was about: enough to tell a hang from a twin that is too slow."""
    told = "; ".join(f"{one.what} at {one.epoch}: {one.cause}" for one in query.story()[-12:])
    how = f"healing: {query.healing()}; exception: {query.exception()}"
    return f"{how}; progress: {query.lastProgress}; the story ends: {told}"
