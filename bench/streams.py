"""What the experiments share: scratch directories, and epochs' times from Spark's own reports."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def epoch_times(progress: list[dict[str, Any]], skip: int) -> list[float]:
    """Milliseconds of each epoch from Spark's own progress reports, the first ``skip`` left out."""
    return [report["durationMs"]["triggerExecution"] for report in progress][skip:]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one run's input, checkpoint and backups."""
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as name:
        yield Path(name)
