"""What both sides of the demo share on Spark: the stream, its session, how far it has come."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tether.algorithms.word_count import WordCount
from tether.cli.demo_talk import SLOTS, EpochEnd
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs
from tether.testing.slow_store import slow_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tether.spark.query import Query


class CountedWords(WordCount):
    """Word count, from a module that brings the slow store into Python workers."""


def words(session: SparkSession, source: Path) -> DataFrame:
    """The demo's files as a stream, one an epoch."""
    return read_epochs(session, source, "word string")


def open_far(work: Path, latency: float, epochs: int) -> SparkSession:
    """A session that knows the slow store.

    Args:
        work: The contender's scratch folder.
        latency: Seconds that a request to the store takes.
        epochs: How many there will be: Spark is to remember all of them.
    """
    settings = {
        **slow_settings(latency, work / "requests"),
        "spark.scheduler.mode": "FAIR",  # a twin must not hold the query up
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.streaming.numRecentProgressUpdates": str(epochs + 100),
        "spark.sql.streaming.minBatchesToRetain": str(epochs + 100),
    }
    return open_session(f"local[{SLOTS},8]", app="tether demo", conf=settings)


class Course:
    """How far a query has come, by Spark's progress reports: asked often, and cheap."""

    def __init__(self) -> None:
        self.files = 0
        """Files whose epochs have ended."""
        self._newest = -1

    def look(self, query: Query | StreamingQuery) -> list[EpochEnd]:
        """The ends of epochs that are new since the last look."""
        last = query.lastProgress
        if last is None or last["batchId"] <= self._newest:
            return []
        reports = [last] if last["batchId"] == self._newest + 1 else query.recentProgress
        found = [one for one in ends_of(reports) if one.epoch > self._newest]
        self._newest = last["batchId"]
        for source in last["sources"]:
            # The number of the newest entry in the source's log; each has one file.
            at = source["endOffset"]
            at = json.loads(at) if isinstance(at, str) else at
            self.files = max(self.files, int(at["logOffset"]) + 1)
        return found


def ends_of(progress: Iterable[Mapping[str, Any]]) -> list[EpochEnd]:
    """The ends of the epochs that had rows, by Spark's own clock.

    Example:
        >>> ends_of([{"batchId": 3, "timestamp": "1970-01-01T00:00:02.000Z", "numInputRows": 5,
        ...           "durationMs": {"triggerExecution": 500}}])
        [EpochEnd(epoch=3, at=2.5, ms=500.0)]
    """
    found = []
    for one in progress:
        took = one["durationMs"].get("triggerExecution")
        if one["numInputRows"] and took is not None:
            began = datetime.fromisoformat(one["timestamp"]).timestamp()
            found.append(EpochEnd(one["batchId"], began + took / 1e3, float(took)))
    return found
