"""The fixed cost of an epoch: no data, one operator with two slots, against bare Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tether
from bench.harness import Experiment, Goal, Measurement
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
WARM_UP = 5
SCHEMA = "k long, v long"


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]")
    epochs = 20 if quick else 40
    experiment = Experiment("epoch", seed=seed, repeats=2 if quick else 5)
    with scratch() as directory:
        empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
        write_epochs(directory / "in", (empty for _ in range(epochs)))
        source = directory / "in"
        experiment.measure(
            {
                "spark: one shuffle, one mapInArrow": lambda: _bare(session, source, epochs),
                "tether: approximate": lambda: _tether(
                    session, source, epochs, tether.Approximate(max_state_error=1000)
                ),
                "tether: no tolerance": lambda: _tether(
                    session, source, epochs, tether.NoTolerance()
                ),
            }
        )
    value = experiment.ratio("tether: approximate", "spark: one shuffle, one mapInArrow")
    return experiment.report(
        [Goal("epoch.fixed_cost", "<=", 1.3, value)], {"rows": 0, "slots": SLOTS, "epochs": epochs}
    )


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


def _tether(session: SparkSession, source: Path, epochs: int, policy: Any) -> Measurement:
    with scratch() as directory:
        query = (
            tether.stream(read_epochs(session, source, SCHEMA))
            .apply(KeyedAggregate(["v"]), key="k", parallelism=SLOTS)
            .start(
                tolerance=policy,
                backup=str(directory / "backup"),
                checkpoint=str(directory / "checkpoint"),
                trigger={"availableNow": True},
            )
        )
        query.awaitTermination()
        progress, slots = query.recentProgress, query.slots()
    ran = len(progress) == epochs and all(slot["epoch"] == epochs - 1 for slot in slots)
    return Measurement(epoch_times(progress, WARM_UP), ran, {"slot_seconds": slots[0]["seconds"]})
