"""Throughput: a keyed sum from Parquet, against no state, Spark's own stores, and pandas state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

import tether
from bench.harness import Experiment, Goal, Measurement
from bench.streams import epoch_times, run_through, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
KEYS = 1_150_000
ROWS = 1_000_000
DISTINCT = 130_000
LOADING = 2
"""Epochs that bring every key in; not measured."""
WARM_UP = 2
PANDAS_SHARE = 0.1
PANDAS_EPOCHS = 2
"""Epochs of the contender that keeps its state in pandas; the first is not measured."""
SCHEMA = "k long, v long"
STORES = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{STORES}.RocksDBStateStoreProvider"
DEFAULT = f"{STORES}.HDFSBackedStateStoreProvider"


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]", memory="6g")
    session.conf.set("spark.sql.shuffle.partitions", str(SLOTS))
    measured = 5 if quick else 12
    epochs = LOADING + WARM_UP + measured
    experiment = Experiment("counts", seed=seed, repeats=1 if quick else 3)
    with scratch() as directory:
        source = directory / "in"
        write_epochs(source, _epochs(epochs, seed))
        truth = _truth(session, source)
        # Drift is one unit of v a row, about half of it in each slot, so this is a backup in ten.
        theta_in_epochs = 10
        budget = 2.0 * theta_in_epochs * ROWS * MEAN_VALUE
        stores = partial(_spark_store, session, source, truth)
        # A Python call for every key: minutes an epoch, more while all keys are loaded. So this one
        # gets epochs of a tenth of the rows and keys, and starts with an empty state, which is to its
        # favour; what is compared is the time per row.
        small = directory / "in-pandas"
        share = PANDAS_SHARE
        write_epochs(small, _epochs(LOADING + PANDAS_EPOCHS, seed, load=False, share=share))
        small_truth = _truth(session, small)
        experiment.measure(
            {
                "spark: no state": lambda: _stateless(session, source, epochs),
                "tether: approximate": lambda: _tether(
                    session, source, truth, tether.Approximate(max_state_error=budget)
                ),
                "tether: no tolerance": lambda: _tether(
                    session, source, truth, tether.NoTolerance()
                ),
                "spark: RocksDB, changelog": lambda: stores(ROCKSDB, changelog=True),
                "spark: default store": lambda: stores(DEFAULT, changelog=False),
                "spark: applyInPandasWithState": lambda: _pandas(session, small, small_truth),
            }
        )
    ours = "tether: approximate"
    goals = [
        Goal("counts.time_to_stateless", "<=", 1.25, experiment.ratio(ours, "spark: no state")),
        Goal(
            "counts.speed_to_rocksdb_changelog",
            ">=",
            2,
            experiment.ratio("spark: RocksDB, changelog", ours),
        ),
        Goal(
            "counts.speed_to_default_store",
            ">=",
            1.7,
            experiment.ratio("spark: default store", ours),
        ),
        Goal(
            "counts.speed_to_apply_in_pandas",
            ">=",
            5,
            experiment.ratio("spark: applyInPandasWithState", ours) / PANDAS_SHARE,
        ),
    ]
    workload = {"rows": ROWS, "distinct": DISTINCT, "resident_keys": KEYS, "epochs": measured}
    return experiment.report(goals, workload)


MEAN_VALUE = 50.5


def _epochs(epochs: int, seed: int, *, load: bool = True, share: float = 1) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    names = random.permutation(KEYS).astype(np.int64) * np.int64(2654435761)
    for part in np.array_split(names, LOADING) if load else ():
        yield pa.table({"k": part, "v": random.integers(1, 101, len(part))})
    for _ in range(epochs - LOADING):
        rows, distinct = round(share * ROWS), round(share * DISTINCT)
        some = random.choice(names, distinct, replace=False)
        yield pa.table({"k": random.choice(some, rows), "v": random.integers(1, 101, rows)})


Digest = tuple[int, int, int]


def _digest(keys_and_sums: DataFrame, key: str, total: str) -> Digest:
    """Number of keys, their sum, and a checksum over every single (key, sum)."""
    row = keys_and_sums.select(
        F.count(F.lit(1)),
        F.sum(total),
        F.sum(F.xxhash64(F.col(key), F.col(total)).cast("decimal(38,0)")),
    ).collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def _truth(session: SparkSession, source: Path) -> Digest:
    totals = session.read.parquet(str(source)).groupBy("k").agg(F.sum("v").alias("total"))
    return _digest(totals, "k", "total")


def _measured(progress: list[dict[str, Any]], skip: int = LOADING + WARM_UP) -> list[float]:
    return epoch_times([p for p in progress if p["numInputRows"]], skip)


def _stateless(session: SparkSession, source: Path, epochs: int) -> Measurement:
    """Spark aggregates each epoch by itself and keeps nothing: the limit for anything on Spark."""

    def epoch(rows: DataFrame, number: int) -> None:
        del number
        rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        totals = rows.groupBy("k").agg(F.sum("v").alias("total"))
        totals.write.format("noop").mode("append").save()

    with scratch() as directory:
        writer = read_epochs(session, source, SCHEMA).writeStream.foreachBatch(epoch)
        progress = run_through(writer, str(directory)).recentProgress
    return Measurement(_measured(progress), len(progress) == epochs)


def _tether(session: SparkSession, source: Path, truth: Digest, policy: Any) -> Measurement:
    with scratch() as directory:
        query = (
            tether.stream(read_epochs(session, source, SCHEMA))
            .apply(KeyedAggregate(["v"], count=None), key="k", parallelism=SLOTS)
            .start(
                tolerance=policy,
                backup=str(directory / "backup"),
                checkpoint=str(directory / "checkpoint"),
            )
        )
        query.processAllAvailable()
        answer = _digest(query.table("totals").withColumnRenamed("sum(v)", "total"), "k", "total")
        query.stop()
        detail = {"totals": query.totals(), "slot_seconds": query.slots()[0]["seconds"]}
    return Measurement(_measured(query.recentProgress), answer == truth, detail)


def _spark_store(
    session: SparkSession, source: Path, truth: Digest, provider: str, *, changelog: bool
) -> Measurement:
    session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    session.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        str(changelog).lower(),
    )
    stream = read_epochs(session, source, SCHEMA)
    totals = stream.groupBy("k").agg(F.sum("v").alias("total"))

    def stored(state: DataFrame) -> DataFrame:
        return state.selectExpr("key.k AS k", "value.sum AS total")

    return _stateful(session, totals, truth, stored)


def _stateful(
    session: SparkSession,
    totals: DataFrame,
    truth: Digest,
    stored: Callable[[DataFrame], DataFrame],
    skip: int = LOADING + WARM_UP,
) -> Measurement:
    with scratch() as directory:
        writer = totals.writeStream.outputMode("update").format("noop")
        query = run_through(writer, str(directory))
        state = stored(session.read.format("statestore").load(str(directory)))
        answer = _digest(state, "k", "total")
        return Measurement(_measured(query.recentProgress, skip), answer == truth)


def _add_up(key: tuple[int], batches: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for batch in batches:
        total += int(batch["v"].sum())
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "total": [total]})


def _pandas(session: SparkSession, source: Path, truth: Digest) -> Measurement:
    """What a user would write: the state of each key in a Python function."""
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    totals = (
        read_epochs(session, source, SCHEMA)
        .groupBy("k")
        .applyInPandasWithState(
            _add_up, "k long, total long", "total long", "update", GroupStateTimeout.NoTimeout
        )
    )

    def stored(state: DataFrame) -> DataFrame:
        return state.selectExpr("key.k AS k", "value.groupState.total AS total")

    return _stateful(session, totals, truth, stored, skip=1)
