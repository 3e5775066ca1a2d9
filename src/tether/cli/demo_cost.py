"""What the demo's stream costs under several kinds of fault tolerance, in the main job's process.

Tells one JSON object a line: ``{"event": "cost", "contender": …, "median_ms": …}``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tether
from tether.algorithms.word_count import WordCount
from tether.cli.demo_stream import SLOTS, tell, words
from tether.core.parse import parse_policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 10
"""Of the demo's, the first so many: enough for a median, and for four contenders in half a minute."""
WARM_UP = 4
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def median_epoch(progress: list[dict[str, Any]]) -> float:
    """Median milliseconds of an epoch after the warm-up."""
    times: list[float] = [report["durationMs"]["triggerExecution"] for report in progress]
    return statistics.median(times[WARM_UP:] or times)


def tether_cost(session: SparkSession, source: str, policy: str, work: Path) -> tuple[float, int]:
    """Median epoch under a policy, and bytes made durable."""
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
    return median_epoch(query.recentProgress), query.totals()["backup_bytes"]


def spark_cost(session: SparkSession, source: str, work: Path) -> float:
    """Median epoch of the same count in Spark's own words, with RocksDB and its changelog."""
    session.conf.set("spark.sql.shuffle.partitions", str(SLOTS))
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    writer = words(session, source).groupBy("word").count().writeStream.outputMode("update")
    writer = writer.format("noop").option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return median_epoch(query.recentProgress)


def first_epochs(source: Path) -> str:
    """A folder beside the demo's, with its first files alone."""
    some = source.with_name("costs")
    some.mkdir()
    for path in sorted(source.glob("*.parquet"))[:EPOCHS]:
        os.link(path, some / path.name)  # with its time, by which Spark orders the files
    return str(some)


def tell_costs(session: SparkSession, source: Path, policy: str) -> None:
    """Measure one contender after the other; ``policy`` is the main job's.

    The session has run the main job by then, so the first contender finds it as warm as the last.
    """
    some = first_epochs(source)
    for name in ("no-tolerance", policy, "mini-batch"):
        with tempfile.TemporaryDirectory(prefix="tether-demo-") as work:
            cost, written = tether_cost(session, some, name, Path(work))
            tell("cost", contender=f"Tether, {name}", median_ms=cost, backup_bytes=written)
    with tempfile.TemporaryDirectory(prefix="tether-demo-") as work:
        tell(
            "cost",
            contender="Spark's groupBy().count(), RocksDB + changelog",
            median_ms=spark_cost(session, some, Path(work)),
            backup_bytes=None,
        )
