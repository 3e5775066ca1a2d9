"""A plain Spark SQL query on Tether's state store, against Spark's own: speed, bytes, recovery."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.counts import DISTINCT, KEYS, LOADING, ROWS, _epochs, _truth
from bench.harness import Experiment, Goal, say
from bench.sql_kills import measure_kills
from bench.sql_runs import (
    CHANGELOG,
    EXACT,
    HDFS,
    OURS,
    STATELESS,
    STORES,
    Workload,
    restart,
    stateful,
    stateless,
)
from bench.streams import scratch
from tether.cli.session import open_session
from tether.testing.epochs import write_epochs
from tether.testing.slow_store import slow_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LATENCY = 0.05
"""Seconds that each request to the far checkpoint takes."""
GOALS = 2
"""Partitions that the goals are about; all else is measured once, for the record."""
WARM_UP = 2
"""Epochs of a run that are not measured, after those that bring all keys in."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session("local[2,4]", memory="8g", conf=slow_settings(LATENCY))
    measured = 5 if quick else 10
    experiment = Experiment("sql", seed=seed, repeats=1 if quick else 3)
    with scratch() as directory:
        work = _workload(session, directory / "in", WARM_UP, measured, seed)
        short = _workload(session, directory / "short", 1, 2, seed)
        say("sql: warming up, every contender once")
        for name in (STATELESS, *STORES):
            _measurement(session, short, 2, name, "")
        for partitions in (GOALS,) if quick else (GOALS, 8, 64):
            experiment.measure(
                {
                    f"{name}, {partitions} partitions": partial(
                        _measurement, session, work, partitions, name, ""
                    )
                    for name in (STATELESS, *STORES)
                },
                warm_up=False,
                repeats=None if partitions == GOALS else 1,
            )
        experiment.measure(
            {
                f"{name}, checkpoint {1_000 * LATENCY:g} ms away": partial(
                    _measurement, session, short if quick else work, 2, name, "slow:"
                )
                for name in STORES
            },
            warm_up=False,
            repeats=1,
        )
        if not quick:
            later = directory / "later"
            write_epochs(later, _epochs(LOADING + 1, seed + 1, load=False))
            experiment.measure(
                {
                    f"restart: {name}": partial(restart, session, work, later, name)
                    for name in STORES
                },
                warm_up=False,
                repeats=1,
            )
    session.stop()
    if not quick:
        measure_kills(experiment, seed)
    return experiment.report(
        _goals(experiment),
        {"rows": ROWS, "distinct": DISTINCT, "resident_keys": KEYS, "epochs": measured},
    )


def _workload(
    session: SparkSession, source: Path, warm_up: int, measured: int, seed: int
) -> Workload:
    epochs = LOADING + warm_up + measured
    write_epochs(source, _epochs(epochs, seed))
    return Workload(source, _truth(session, source), epochs, LOADING + warm_up)


def _measurement(
    session: SparkSession, work: Workload, partitions: int, name: str, place: str
) -> Any:
    if name == STATELESS:
        return stateless(session, work, partitions)
    return stateful(session, work, partitions, name, place)


def _goals(experiment: Experiment) -> list[Goal]:
    ours, exact, changelog, default = (
        f"{name}, {GOALS} partitions" for name in (OURS, EXACT, CHANGELOG, HDFS)
    )
    details = [run.detail for runs in experiment.runs.values() for run in runs]
    per_key = experiment.runs[ours][-1].detail["bytes_per_key"]
    theirs = experiment.runs[default][-1].detail["bytes_per_key"]
    return [
        Goal("sql.speed_to_rocksdb_changelog", ">=", 2.5, experiment.ratio(changelog, ours)),
        Goal("sql.speed_to_default_store", ">=", 1.8, experiment.ratio(default, ours)),
        Goal("sql.exact_speed_to_rocksdb_changelog", ">=", 1.8, experiment.ratio(changelog, exact)),
        Goal("sql.bytes_per_key_to_default_store", "<=", 1, per_key / theirs),
        # A run with a wrong answer ends the experiment, so what is counted here did not end it.
        Goal("sql.wrong_answers", "<=", 0, sum(d.get("wrong_answers", 0) for d in details)),
        Goal("sql.bound_violations", "<=", 0, sum(d.get("bound_violations", 0) for d in details)),
    ]
