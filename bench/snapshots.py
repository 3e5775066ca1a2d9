"""Run time against the snapshot interval, and against the number of slots: ABS 2015, Figures 6 and 7.

The topology has three full shuffles: three keyed operators in a row, each by another key.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

import tether
from bench.harness import Experiment, Goal, Measurement
from bench.streams import epoch_times, scratch
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "a long, b long, c long"
SLOTS = 2
WARM_UP = 2
KEYS = 100_000
STALL = 3.0
NONE, AT_1S = "none", "async every 1 s"

# Spark's workers do not have this directory on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Counted(tether.Operator):
    """Counts rows by one of the columns, and sends them on."""

    output = SCHEMA

    def __init__(self, column: str) -> None:
        self._column = column

    def parameters(self) -> dict[str, object]:
        """Its column."""
        return {"column": self._column}

    def setup(self, state: Any) -> None:
        """One table."""
        self.seen = state.table("seen", {self._column: pa.int64()}, {"n": "int64"})

    def process(self, batch: Any, out: Any) -> None:
        """Count, and send on."""
        self.seen.add(batch.select([self._column]), n=1)
        out.emit(batch.select(["a", "b", "c"]))


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]", memory="6g")
    rows, epochs = (100_000, WARM_UP + 10) if quick else (200_000, WARM_UP + 30)
    intervals = (0.5, 1.0, 3.0) if quick else (0.5, 1.0, 2.0, 3.0, 5.0)
    slots = (1, 2, 4) if quick else (1, 2, 4, 8)
    with scratch() as directory:
        write_epochs(directory / "in", _epochs(epochs, rows, seed))
        one = partial(_measure, session, directory / "in", rows * epochs)
        none = partial(one, tether.NoTolerance(), SLOTS)
        # The goal is about a few per cent, so these two run in turn, more often than the rest.
        close = Experiment("snapshots", seed=seed, repeats=3 if quick else 7)
        close.measure({NONE: none, AT_1S: partial(one, tether.Barrier(1.0, by="seconds"), SLOTS)})
        contenders = {NONE: none}
        for mode in ("async", "sync"):
            for interval in intervals:
                policy = tether.Barrier(interval, by="seconds", mode=mode)
                contenders[f"{mode} every {interval:g} s"] = partial(one, policy, SLOTS)
        for number in slots:
            if number != SLOTS:
                policy = tether.Barrier(1.0, by="seconds")
                contenders[f"{NONE}, {number} slots"] = partial(one, tether.NoTolerance(), number)
                contenders[f"{AT_1S}, {number} slots"] = partial(one, policy, number)
        figures = Experiment("snapshots, figures", seed=seed, repeats=1 if quick else 3)
        figures.measure(contenders)
    goals = [Goal("snapshots.async_at_1s", "<=", 1.1, close.ratio(AT_1S, NONE))]
    workload = {"rows": rows, "epochs": epochs - WARM_UP, "keys": 3 * KEYS, "shuffles": 3}
    report = close.report(goals, workload)
    report["figures"] = figures.report([], workload)["results"]
    for row in report["figures"]:
        _, comma, several = row["contender"].partition(",")
        row["run_time_ratio"] = round(figures.ratio(row["contender"], NONE + comma + several), 3)
    return report


def _epochs(epochs: int, rows: int, seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        yield pa.table({name: random.integers(0, KEYS, rows) for name in "abc"})


def _measure(
    session: SparkSession, source: Path, rows: int, policy: Any, slots: int
) -> Measurement:
    with scratch() as directory:
        stream = tether.stream(read_epochs(session, source, SCHEMA))
        for column in "abc":
            stream = stream.apply(
                Counted(column), key=column, parallelism=slots, name=f"by_{column}"
            )
        query = stream.start(
            tolerance=policy,
            backup=str(directory / "backup"),
            checkpoint=str(directory / "checkpoint"),
        )
        query.processAllAvailable()
        counted = [
            query.table("seen", f"by_{column}").agg({"n": "sum"}).collect()[0][0]
            for column in "abc"
        ]
        times = epoch_times([p for p in query.recentProgress if p["numInputRows"]], WARM_UP)
        events = [event.what for event in query.story()]
        query.stop()
        detail = {
            "snapshots": events.count("snapshot"),
            "given_up": events.count("given-up"),
            "durable_bytes": query.totals()["backup_bytes"],
        }
    # An epoch in which the machine stood still says nothing of snapshots.
    usual = STALL * statistics.median(times)
    mean = statistics.fmean(time for time in times if time <= usual)
    return Measurement([mean], answer_checked=counted == [rows] * 3, detail=detail)
