"""What the experiments share: scratch directories, and epochs' times from Spark's own reports."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming import StreamingQuery


def epoch_times(progress: list[dict[str, Any]], skip: int) -> list[float]:
    """Milliseconds of each epoch from Spark's own progress reports, the first ``skip`` left out."""
    return [report["durationMs"]["triggerExecution"] for report in progress][skip:]


def run_through(writer: Any, checkpoint: str) -> StreamingQuery:
    """Run a query of Spark's over all files there are, as ours run beside it.

    Not with ``availableNow``: Spark lists the files once then, and once an epoch otherwise.
    """
    query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one run's input, checkpoint and backups."""
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as name:
        yield Path(name)
