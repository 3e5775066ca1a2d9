"""Executors killed under a query that heals: what is wrong afterwards, and what it costs meanwhile.

A query on two executors reads epochs at about half the pace that it can. Then one executor gets SIGKILL,
with many epochs since the newest snapshot. Side by side: today's rewind, which reads them all again
before it answers; a barrier with ``meanwhile``, which answers tentatively while its twin does that; and
an approximate query that heals.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import tether
from bench.executor_kills import open_cluster
from bench.harness import Experiment, Goal, Measurement, say
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.processes import command_of, descendants, kill

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SLOTS, KEYS, WARM_UP = 2, 1_000, 3
SCHEMA = "k long"
SECONDS = 180.0
POLICIES = {
    "rewind": tether.Barrier(45, mode="sync"),
    "meanwhile": tether.Barrier(45, mode="sync", meanwhile="stale"),
    "heal": tether.Approximate(1e6, heal=tether.Barrier(45)),
}


@dataclass
class Seen:
    """What a sink was given, and when."""

    at: list[float] = field(default_factory=list)
    stable: dict[int, Counter[tuple[int, int]]] = field(default_factory=dict)
    withdrawn: int = 0

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Rows of an epoch, with their kinds."""
        got = rows.select("k", "count", "_change_type", "_stability").collect()
        self.at.append(time.monotonic())
        put = ("insert", "update_postimage")
        final = Counter((k, n) for k, n, change, kind in got if kind == "stable" and change in put)
        if any(row["_stability"] == "tentative" and row["_change_type"] == "insert" for row in got):
            self.withdrawn += epoch in self.stable
            return
        self.withdrawn += self.stable.get(epoch, final) != final
        self.stable[epoch] = final

    def take_back(self, epoch: int) -> None:
        """A rewind gives these again."""
        self.withdrawn += sum(at >= epoch for at in self.stable)
        self.stable = {at: rows for at, rows in self.stable.items() if at < epoch}


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    kills, behind, rows = (1, 20, 5_000) if quick else (30, 20, 20_000)
    with scratch() as directory:
        session = open_cluster(
            directory, locality_wait="60s", conf={"spark.scheduler.mode": "FAIR"}
        )
        outcomes: dict[str, list[dict[str, float]]] = {name: [] for name in POLICIES}
        for number in range(kills):
            for name in POLICIES if number < 3 else ("meanwhile", "heal"):
                case = Case(name, seed + number, behind, rows)
                got = _kill_once(session, directory, case)
                outcomes[name].append(got)
                say(f"heal: kill {number + 1} of {kills}, {name}, seed {seed + number}: {got}")
        cost = Experiment("heal", seed=seed, repeats=1 if quick else 9)
        write_epochs(directory / "in", _epochs((30 if quick else 90) + WARM_UP, rows, seed))
        plain = tether.Approximate(1e6)
        healing = tether.Approximate(1e6, heal=tether.Barrier(30))
        one = partial(_measure, session, directory / "in", rows)
        cost.measure({"without": partial(one, plain), "with heal": partial(one, healing)})
        session.stop()
    healed = outcomes["meanwhile"] + outcomes["heal"]
    gap = partial(_median, "gap")
    goals = [
        Goal("heal.wrong_after", "<=", 0, sum(one["wrong"] for one in healed)),
        Goal("heal.stable_withdrawn", "<=", 0, sum(one["withdrawn"] for one in healed)),
        Goal("heal.output_gap", "<=", 0.3, gap(outcomes["meanwhile"]) / gap(outcomes["rewind"])),
        Goal("heal.main_slowdown", "<=", 1.6, _median("slowdown", outcomes["meanwhile"])),
        Goal("heal.catch_up", ">=", 0.001, _median("gained", outcomes["meanwhile"])),
        Goal("heal.cost_without_failure", ">=", 0.97, cost.ratio("without", "with heal")),
    ]
    workload = {"rows": rows, "keys": KEYS, "slots": SLOTS, "epochs_since_snapshot": behind}
    report = cost.report(goals, workload)
    report["kills"] = {name: runs for name, runs in outcomes.items() if runs}
    report["seeds"] = [seed + number for number in range(kills)]
    return report


def _median(name: str, runs: list[dict[str, float]]) -> float:
    return statistics.median(one[name] for one in runs)


def _epochs(epochs: int, rows: int, seed: int) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    return [pa.table({"k": random.integers(0, KEYS, rows)}) for _ in range(epochs)]


def _start(session: SparkSession, work: Path, policy: Any, sink: Any) -> Any:
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


class Case(NamedTuple):
    """One kill: of which contender, and how far from its snapshot."""

    name: str
    seed: int
    behind: int
    rows: int


def _kill_once(session: SparkSession, directory: Path, case: Case) -> dict[str, float]:
    """One query, one SIGKILL with many epochs since the snapshot; the input goes on meanwhile."""
    name, seed, behind, rows = case
    work = directory / f"{name}-{seed}"
    tables = _epochs(400, rows, seed)
    seen = Seen()
    write_epochs(work / "in", tables[: behind + 1])
    query = _start(session, work, POLICIES[name], seen)
    query.processAllAvailable()
    usual = statistics.median(epoch_times(query.recentProgress, WARM_UP)) / 1e3
    feeder = Feeder(work / "in", tables, behind + 1, 2 * usual)
    feeder.start()
    _await(lambda: len(seen.stable) > behind + 5)  # at its pace
    before = statistics.median(epoch_times(query.recentProgress[-5:], 0))
    struck, first = time.monotonic(), len(query.recentProgress)
    kill(_executors()[seed % SLOTS])
    over = "rewound" if name == "rewind" else "taken-over"
    _await(lambda: any(event.what == over for event in query.story()))
    done = time.monotonic()
    during = epoch_times(query.recentProgress[first:], 0)
    _await(lambda: name != "rewind" or max(seen.stable, default=0) >= feeder.given - 3)
    feeder.stop()
    query.processAllAvailable()
    query.stop()
    after = [struck, *[at for at in seen.at if at >= struck]]
    gaps = [late - early for early, late in pairwise(after)]
    (taken,) = [e for e in query.story() if e.what == over][:1]
    from_epoch = taken.epoch + 1 if name == "heal" else 0
    return {
        "wrong": float(_wrong(seen, tables[: feeder.given], from_epoch)),
        "withdrawn": float(seen.withdrawn) if name != "rewind" else 0.0,
        "gap": max(gaps),
        "slowdown": statistics.median(during) / before if during else 1.0,
        "seconds": done - struck,
        "gained": behind / (done - struck),
        "usual_epoch": usual,
    }


def _wrong(seen: Seen, tables: list[pa.Table], from_epoch: int) -> int:
    """Epochs whose stable rows are not those of a run without a failure."""
    counts: Counter[int] = Counter()
    wrong = 0
    for epoch, table in enumerate(tables):
        keys = Counter(table["k"].to_pylist())
        counts.update(keys)
        right = Counter({(key, counts[key]): 1 for key in keys})
        wrong += epoch >= from_epoch and seen.stable.get(epoch) != right
    return wrong


class Feeder(threading.Thread):
    """Writes an epoch's file every so many seconds."""

    def __init__(self, folder: Path, tables: list[pa.Table], first: int, every: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._tables, self.given = folder, tables, first
        self._every, self._ended = every, threading.Event()

    def run(self) -> None:
        """Until it is stopped, or all have been given."""
        while not self._ended.wait(self._every) and self.given < len(self._tables):
            write_epochs(self._folder, [self._tables[self.given]], first=self.given)
            self.given += 1

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()
        self.join()


def _executors() -> list[int]:
    found = [pid for pid in descendants(os.getpid()) if "CoarseGrained" in command_of(pid)]
    return sorted(found)


def _await(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened in {SECONDS:.0f} s")
        time.sleep(0.02)


def _measure(session: SparkSession, source: Path, rows: int, policy: Any) -> Measurement:
    with scratch() as directory:
        (directory / "in").symlink_to(source)
        query = _start(session, directory, policy, None)
        query.processAllAvailable()
        total = query.table("totals").agg({"count": "sum"}).collect()[0][0]
        times = epoch_times([p for p in query.recentProgress if p["numInputRows"]], WARM_UP)
        query.stop()
    files = sum(1 for _ in source.glob("*.parquet"))
    return Measurement([statistics.fmean(times)], answer_checked=total == files * rows)
