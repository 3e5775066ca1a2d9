"""What the demo's stream costs under several kinds of fault tolerance, in the main job's process.

Tells one JSON object a line: ``{"event": "cost", "contender": …, "median_ms": …}``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tether
from tether.algorithms.word_count import WordCount
from tether.cli.demo_stream import SLOTS, tell, words
from tether.policies.parse import parse_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

EPOCHS = 7
"""Of the demo's, the first so many: enough for a median, and for four contenders in half a minute."""
WARM_UP = 2
ROUNDS = 2
"""Contenders run in turn, there and back, so that none of them always meets the colder Spark."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def warm_epochs(progress: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of each epoch after the warm-up."""
    times: list[float] = [report["durationMs"]["triggerExecution"] for report in progress]
    return times[WARM_UP:] or times


Cost = tuple[list[float], int | None]
"""Milliseconds of the measured epochs, and bytes made durable where they are known."""


def tether_cost(policy: str, session: SparkSession, source: str, work: Path) -> Cost:
    """The count under a policy."""
    query = (
        tether.stream(words(session, source))
        .apply(WordCount(), key="word", parallelism=SLOTS)
        .start(
            tolerance=parse_policy(policy),
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            trigger={"availableNow": True},
        )
    )
    query.awaitTermination()
    return warm_epochs(query.recentProgress), query.totals()["backup_bytes"]


def spark_cost(session: SparkSession, source: str, work: Path) -> Cost:
    """The same count in Spark's own words, with RocksDB and its changelog."""
    session.conf.set("spark.sql.shuffle.partitions", str(SLOTS))
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    writer = words(session, source).groupBy("word").count().writeStream.outputMode("update")
    writer = writer.format("noop").option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return warm_epochs(query.recentProgress), None


def first_epochs(source: Path) -> str:
    """A folder beside the demo's, with its first files alone."""
    some = source.with_name("costs")
    some.mkdir()
    for path in sorted(source.glob("*.parquet"))[:EPOCHS]:
        os.link(path, some / path.name)  # with its time, by which Spark orders the files
    return str(some)


def tell_costs(session: SparkSession, source: Path, policy: str) -> None:
    """Measure the contenders in turn; ``policy`` is the main job's.

    The session has run the main job by then, so the first contender finds it as warm as the last.
    """
    some = first_epochs(source)
    contenders: dict[str, Callable[[SparkSession, str, Path], Cost]] = {
        f"Tether, {name}": partial(tether_cost, name)
        for name in ("no-tolerance", policy, "mini-batch")
    }
    contenders["Spark's groupBy().count(), RocksDB + changelog"] = spark_cost
    times: dict[str, list[float]] = {name: [] for name in contenders}
    written: dict[str, int | None] = {}
    order = list(contenders.items())
    for number in range(ROUNDS):
        for name, cost in order if number % 2 == 0 else reversed(order):
            with tempfile.TemporaryDirectory(prefix="tether-demo-") as work:
                measured, written[name] = cost(session, some, Path(work))
                times[name] += measured
    for name, milliseconds in times.items():
        median = statistics.median(milliseconds)
        tell("cost", contender=name, median_ms=median, backup_bytes=written[name])
