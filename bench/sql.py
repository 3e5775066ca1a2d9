"""A plain Spark SQL query on Tether's state store, against Spark's own stores: speed, bytes, memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from bench.counts import (
    DEFAULT,
    DISTINCT,
    KEYS,
    LOADING,
    ROCKSDB,
    ROWS,
    SCHEMA,
    WARM_UP,
    Digest,
    _digest,
    _epochs,
    _truth,
)
from bench.harness import Experiment, Goal, Measurement, say
from bench.streams import epoch_times, scratch
from tether.cli.session import open_session
from tether.sql import bounded
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BUDGET = 500_000
"""Θ: changed rows, over all partitions."""
STORE = "spark.sql.streaming.stateStore"
OURS, EXACT = "tether: 500,000 changed rows", "tether: exact"
CHANGELOG, HDFS = "spark: RocksDB, changelog", "spark: default store"
RESTART = "restart: "


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session("local[2,4]", memory="8g")
    measured = 6 if quick else 12
    epochs = LOADING + WARM_UP + measured
    experiment = Experiment("sql", seed=seed, repeats=1 if quick else 3)
    with scratch() as directory:
        source = directory / "in"
        write_epochs(source, _epochs(epochs, seed))
        later = directory / "later"
        write_epochs(later, _epochs(LOADING + 1, seed + 1, load=False))
        truth = _truth(session, source)
        for partitions in (2,) if quick else (2, 8, 64):
            experiment.measure(
                {
                    _named(name, partitions): partial(
                        _run, session, source, truth, partitions, name
                    )
                    for name in (OURS, EXACT, CHANGELOG, HDFS)
                }
            )
        experiment.measure(
            {
                RESTART + name: partial(_restart, session, source, later, name)
                for name in (OURS, EXACT, CHANGELOG, HDFS)
            }
        )
    return experiment.report(
        _goals(experiment),
        {"rows": ROWS, "distinct": DISTINCT, "resident_keys": KEYS, "epochs": measured},
    )


def _goals(experiment: Experiment) -> list[Goal]:
    ours, exact, changelog, default = (_named(n, 2) for n in (OURS, EXACT, CHANGELOG, HDFS))
    details = [run.detail for runs in experiment.runs.values() for run in runs]
    per_key = experiment.runs[ours][-1].detail["bytes_per_key"]
    theirs = experiment.runs[default][-1].detail["bytes_per_key"]
    return [
        Goal("sql.speed_to_rocksdb_changelog", ">=", 2.5, experiment.ratio(changelog, ours)),
        Goal("sql.speed_to_default_store", ">=", 1.8, experiment.ratio(default, ours)),
        Goal("sql.exact_speed_to_rocksdb_changelog", ">=", 1.8, experiment.ratio(changelog, exact)),
        Goal("sql.bytes_per_key_to_default_store", "<=", 1, per_key / theirs),
        # A run with a wrong answer ends the experiment, so what is counted here did not end it.
        Goal("sql.wrong_answers", "<=", 0, sum(detail["wrong_answers"] for detail in details)),
        Goal("sql.bound_violations", "<=", 0, sum(d["bound_violations"] for d in details)),
    ]


def _named(name: str, partitions: int) -> str:
    return f"{name}, {partitions} partitions"


def _configure(session: SparkSession, name: str) -> None:
    if name in (OURS, EXACT):
        bounded(session, max_state_error=BUDGET if name == OURS else 0)
        return
    session.conf.set(f"{STORE}.providerClass", DEFAULT if name == HDFS else ROCKSDB)
    session.conf.set(
        f"{STORE}.rocksdb.changelogCheckpointing.enabled", str(name == CHANGELOG).lower()
    )


def _start(session: SparkSession, source: str, checkpoint: Path, name: str) -> StreamingQuery:
    _configure(session, name)
    totals = read_epochs(session, source, SCHEMA).groupBy("k").agg(F.sum("v").alias("total"))
    writer = totals.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _run(
    session: SparkSession, source: Path, truth: Digest, partitions: int, name: str
) -> Measurement:
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    with scratch() as directory:
        collected = _gc_ms(session)
        query = _start(session, str(source), directory / "checkpoint", name)
        collected = _gc_ms(session) - collected
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        state = progress[-1]["stateOperators"][0]
        detail = {
            "bytes_written": _bytes(directory / "checkpoint" / "state"),
            "bytes_per_key": state["memoryUsedBytes"] / state["numRowsTotal"],
            "gc_ms": collected,
            "bound_violations": _violations(progress),
            "wrong_answers": 0,
        }
        # Closing the stores makes ours durable to the last row, so that the state can be read.
        _close_stores(session)
        answer = _digest(_stored(session, directory / "checkpoint"), "k", "total")
    result = Measurement(epoch_times(progress, LOADING + WARM_UP), answer == truth, detail)
    say(f"  {result.median_ms:.0f} ms an epoch, {detail}")
    return result


def _restart(session: SparkSession, source: Path, later: Path, name: str) -> Measurement:
    """Time of the first epoch of a query that starts again with nothing in memory."""
    session.conf.set("spark.sql.shuffle.partitions", "2")
    with scratch() as directory:
        everything = directory / "in"
        everything.mkdir()
        for path in sorted(source.iterdir()):
            (everything / path.name).symlink_to(path)
        _start(session, str(everything), directory / "checkpoint", name)
        # What a restart finds may lack the latest changes of at most Θ/2 rows, of none where exact.
        totals = session.read.parquet(str(source)).groupBy("k").agg(F.sum("v").alias("expected"))
        found = _stored(session, directory / "checkpoint").join(totals, "k", "right")
        wrong_rows = found.where("total IS NULL OR total != expected").count()
        for path in sorted(later.iterdir()):
            (everything / f"z-{path.name}").symlink_to(path)
        query = _start(session, str(everything), directory / "checkpoint", name)
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        within = wrong_rows <= (BUDGET / 2 if name == OURS else 0)
        detail = {
            "wrong_rows_before": wrong_rows,
            "bound_violations": _violations(progress),
            "wrong_answers": 0 if within else 1,
        }
        _close_stores(session)
    return Measurement(epoch_times(progress, 0)[:1], within, detail)


def _stored(session: SparkSession, checkpoint: Path) -> DataFrame:
    state = session.read.format("statestore").load(str(checkpoint))
    return state.selectExpr("key.k AS k", "value.sum AS total")


def _close_stores(session: SparkSession) -> None:
    stores: Any = session.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state
    stores.StateStore.stop()


def _violations(progress: list[dict[str, Any]]) -> int:
    found = [one["stateOperators"][0]["customMetrics"] for one in progress]
    return sum(
        metrics["tetherDivergence"] > metrics["tetherThreshold"]
        for metrics in found
        if "tetherDivergence" in metrics
    )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _gc_ms(session: SparkSession) -> int:
    jvm: Any = session.sparkContext._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sum(bean.getCollectionTime() for bean in beans)
