"""The fixed cost of an epoch: no data, and little, one operator with two slots, against bare Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from bench.harness import Experiment, Measurement
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
WARM_UP = 5
SCHEMA = "k long, v long"
LITTLE = 1_000
"""Rows of a small epoch."""
BARE = "spark: one shuffle, one mapInArrow"
OURS = "tether: approximate"


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]")
    epochs = 20 if quick else 40
    experiment = Experiment("epoch", seed=seed, repeats=2 if quick else 5)
    policy = tether.Approximate(max_state_error=1_000_000)
    with scratch() as directory:
        none, little = directory / "none", directory / "little"
        write_epochs(none, (_table(seed, 0) for _ in range(epochs)))
        write_epochs(little, (_table(seed + at, LITTLE) for at in range(epochs)))
        contenders: dict[str, Callable[[], Measurement]] = {}
        for source, rows in ((none, ""), (little, f", {LITTLE} rows")):
            each = partial(_tether, session, source, epochs)
            contenders |= {
                BARE + rows: partial(_bare, session, source, epochs),
                OURS + rows: partial(each, policy, fold_at_source=True),
                f"tether: Spark reads{rows}": partial(each, policy),
            }
        contenders["tether: no tolerance"] = partial(
            _tether, session, none, epochs, tether.NoTolerance()
        )
        experiment.measure(contenders)
    goals = [
        experiment.goal("epoch.fixed_cost", "<=", 0.85, OURS, BARE),
        experiment.goal(
            "epoch.small_cost", "<=", 0.85, f"{OURS}, {LITTLE} rows", f"{BARE}, {LITTLE} rows"
        ),
    ]
    return experiment.report(goals, {"rows": LITTLE, "slots": SLOTS, "epochs": epochs})


def _table(seed: int, rows: int) -> pa.Table:
    at = np.random.default_rng(seed)
    return pa.table({"k": at.integers(0, 500, rows), "v": at.integers(0, 100, rows)})


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _bare(session: SparkSession, source: Path, epochs: int) -> Measurement:
    def epoch(rows: DataFrame, number: int) -> None:
        del number
        # The leanest form: adaptive execution would only add to its time.
        rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        shuffled = rows.repartition(SLOTS, "k").mapInArrow(_same, SCHEMA)
        shuffled.write.format("noop").mode("append").save()

    with scratch() as directory:
        writer = read_epochs(session, source, SCHEMA).writeStream.foreachBatch(epoch)
        writer = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        progress = query.recentProgress
    return Measurement(epoch_times(progress, WARM_UP), len(progress) == epochs)


def _tether(
    session: SparkSession, source: Path, epochs: int, policy: Any, *, fold_at_source: bool = False
) -> Measurement:
    with scratch() as directory:
        query = (
            tether.stream(read_epochs(session, source, SCHEMA))
            .apply(KeyedAggregate(["v"]), key="k", parallelism=SLOTS)
            .start(
                tolerance=policy,
                backup=str(directory / "backup"),
                checkpoint=str(directory / "checkpoint"),
                trigger={"availableNow": True},
                fold_at_source=fold_at_source,
            )
        )
        query.awaitTermination()
        progress, slots = query.recentProgress, query.slots()
    ran = len(progress) == epochs and all(slot["epoch"] == epochs - 1 for slot in slots)
    return Measurement(epoch_times(progress, WARM_UP), ran, {"slot_seconds": slots[0]["seconds"]})
