"""What a Spark session must be like for a Tether query, checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DatetimeType, NumericType

from tether.core.errors import QueryRefusedError
from tether.spark.running.workers import use_drivers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FAIR_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Without it, Spark from pip forks some 20 helper processes a micro-batch for its log files."""

WARM_DAEMON = "tether.spark.tasks.worker_daemon"
"""Spark's Python daemon with what slots need loaded: a killed worker is back ten times sooner."""

ROWS_PER_BATCH = 65_536
"""Rows in one Arrow batch to a slot: Spark's default of 10,000 makes numpy calls too small."""

NARROW_COLUMNS = 64
"""With this number of columns, of at most 16 bytes each, a batch stays below Spark's limit of 64 MB."""

ANY_BYTES_PER_BATCH = 2**31 - 1
"""Spark's value for no limit: with one it adds up the sizes of all columns after every row."""

PIPE_BYTES = 1 << 20
"""Buffer between Spark and its Python workers; with its 64 KB they wait for each other often."""


def refuse_connect(session: SparkSession) -> None:
    """Refuse a session of Spark Connect, before anything of it is asked that it does not have.

    Raises:
        QueryRefusedError: It is one.
    """
    if not hasattr(session, "_jsparkSession"):
        raise QueryRefusedError(
            "A Tether query needs a classic Spark session.",
            why="Slots report to the driver through accumulators, and epochs run in the driver's own "
            "Python; a Spark Connect client has neither.",
            do="Create the session with SparkSession.builder.master(...), not .remote(...), or submit "
            "the program to the cluster. A plain Spark SQL query can have a bound through Connect: its "
            "server needs the settings of tether.sql.server_settings(...).",
        )


def check_session(session: SparkSession) -> None:
    """Refuse a session in which the epoch protocol would not hold; let its workers run this Python.

    Raises:
        QueryRefusedError: Speculative execution is on, or the session is a Spark Connect client.
    """
    refuse_connect(session)
    if (session.conf.get("spark.speculation", "false") or "false").lower() == "true":
        raise QueryRefusedError(
            "Speculative execution is on (spark.speculation=true).",
            why="Two attempts of one slot's task would update the same resident state at a time.",
            do="Set spark.speculation=false for this application.",
        )
    use_drivers_python(session)


def is_narrow(schema: StructType) -> bool:
    """Whether a batch of such rows cannot be large, whatever is in them."""
    plain = (NumericType, BooleanType, DatetimeType)
    kinds = [field.dataType for field in schema.fields]
    return len(kinds) <= NARROW_COLUMNS and all(isinstance(kind, plain) for kind in kinds)


def tune_epochs(session: SparkSession, slots: int, *, narrow: bool) -> None:
    """Set what an epoch's plan relies on, in the streaming query's own copy of the session.

    Args:
        session: The streaming query's.
        slots: Number of partitions of a shuffle.
        narrow: Whether all rows that reach slots are narrow.
    """
    # Adaptive execution merges or drops shuffle partitions; a partition must be a slot.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(slots))
    rows = _at_least(session, "spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_BATCH)
    _at_least(session, "spark.sql.execution.pandas.udf.buffer.size", PIPE_BYTES)
    if (
        narrow and rows == ROWS_PER_BATCH
    ):  # a user who asked for more rows gets a limit by bytes too
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(ANY_BYTES_PER_BATCH))


def _at_least(session: SparkSession, name: str, least: int) -> int:
    """Raise a setting where it is lower; gives what it is then."""
    value = max(int(session.conf.get(name) or 0), least)
    session.conf.set(name, str(value))
    return value
