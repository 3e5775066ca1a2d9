"""What a Spark session must be like for a Tether query, checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import QueryRefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAIR_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Without it, Spark from pip forks some 20 helper processes a micro-batch for its log files."""

ROWS_PER_BATCH = 65_536
"""Rows in one Arrow batch to a slot: Spark's default of 10,000 makes numpy calls too small."""


def check_session(session: SparkSession) -> None:
    """Refuse a session in which the epoch protocol would not hold.

    Raises:
        QueryRefusedError: Speculative execution is on, or the session is a Spark Connect client.
    """
    if not hasattr(session, "_jsparkSession"):
        raise QueryRefusedError(
            "A Tether query needs a classic Spark session.",
            why="Slots report to the driver through accumulators, which Spark Connect does not have.",
            do="Create the session with SparkSession.builder.master(...), not .remote(...).",
        )
    if (session.conf.get("spark.speculation", "false") or "false").lower() == "true":
        raise QueryRefusedError(
            "Speculative execution is on (spark.speculation=true).",
            why="Two attempts of one slot's task would update the same resident state at a time.",
            do="Set spark.speculation=false for this application.",
        )


def tune_epochs(session: SparkSession, slots: int) -> None:
    """Set what an epoch's plan relies on, in the streaming query's own copy of the session."""
    # Adaptive execution merges or drops shuffle partitions; a partition must be a slot.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(slots))
    if int(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0) < ROWS_PER_BATCH:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
