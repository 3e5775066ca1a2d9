"""Spark's own log files on stores across a network: their round trips overlap."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tether.core.errors import QueryRefusedError
from tether.sql.settings import Bounded, check_session, is_remote, load_class, runs_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LONGEST_START_SECONDS = 60
MANAGER_CLASS = "spark.sql.streaming.checkpointFileManagerClass"
OVERLAPPED = "tether.files.OverlappedCheckpointFiles"
_PLAIN = "FileSystemBasedCheckpointFileManager"
"""End of the name of the class that ours extends."""

_enabled: dict[int, Any] = {}
"""The class in the JVM, by the identity of its gateway."""


class Overlapped(Bounded):
    """The setting while it is in force."""

    def undo(self) -> None:
        """Set the session back, once the queries that were started have opened their sources' logs."""
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while any(map(_is_starting, self._spark.streams.active)) and time.monotonic() < deadline:
            time.sleep(0.005)
        super().undo()


def _is_starting(query: StreamingQuery) -> bool:
    # Sources are made in the query's own thread, with the session's settings of that moment.
    return bool(query.isActive and query.status["message"].startswith("Initializing"))


def overlapped_checkpoints(spark: SparkSession) -> Overlapped:
    """Let the queries that this thread starts from now on wait less for a far checkpoint.

    Intuition: Spark writes three small files an epoch and asks twice whether each is there, one request
    after the other. Here they are sent while it goes on. Guarantee: they appear in the order in which
    Spark wrote them, and no epoch begins before its offsets, and all that was written before them, are
    durable; so a crash leaves nothing behind that it could not have left behind with Spark's own files.
    An epoch whose commit was still on its way is run again, as after a crash right before its commit.

    For any streaming query on Spark 4.3, with or without our operators and store. In a ``with`` block
    it holds for the queries that are started in it. Our operators do it by themselves where their
    checkpoint is not on a local disk and no other class was chosen.

    Example:
        ::

            with tether.sql.overlapped_checkpoints(spark):
                query = events.writeStream.option("checkpointLocation", "s3a://…").start()
    """
    check_session(spark)
    if is_remote(spark):
        raise QueryRefusedError(
            "Overlapped checkpoints cannot be set through Spark Connect.",
            why="Whoever reads a checkpoint past Spark must ask the driver what is on its way.",
            do="Start the query in the driver's own program, or leave its checkpoint as it is.",
        )
    kind = load_class(spark, OVERLAPPED)
    _enabled[id(spark.sparkContext._gateway)] = kind
    return Overlapped(spark, {MANAGER_CLASS: OVERLAPPED})


def overlapped_where_far(spark: SparkSession, checkpoint: str) -> AbstractContextManager[object]:
    """The same where a checkpoint is across a network, unless somebody chose a class for it."""
    chosen = spark.conf.get(MANAGER_CLASS, None) or _PLAIN
    if runs_on(spark.version) and is_far(checkpoint) and chosen.endswith(_PLAIN):
        return overlapped_checkpoints(spark)
    return nullcontext()


def is_far(checkpoint: str) -> bool:
    """Whether a path names a file system other than the local one.

    Example:
        >>> is_far("s3a://bucket/checkpoint"), is_far("/tmp/checkpoint"), is_far("file:///tmp/c")
        (True, False, False)
    """
    return urlsplit(checkpoint).scheme not in ("", "file")


def settle_checkpoints() -> None:
    """Wait until all that Spark wrote is durable: before a checkpoint is read or changed past Spark."""
    if not _enabled:
        return
    from pyspark import SparkContext  # noqa: PLC0415 - whoever enabled it has PySpark

    context = SparkContext._active_spark_context
    kind = _enabled.get(id(context._gateway)) if context else None
    if kind is not None:
        next(m for m in kind.getMethods() if m.getName() == "settle").invoke(None, None)
