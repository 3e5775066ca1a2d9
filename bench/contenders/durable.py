"""What a run has made durable: bytes, and requests to a slow store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tether.testing.slow_store import REQUESTS, requests

if TYPE_CHECKING:
    from bench.contenders.course import Course


def durable_bytes(directory: str, folder: str) -> int:
    """Bytes of the files that lie below a folder of a durable directory."""
    root = Path(directory.removeprefix("slow://")) / folder
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def request_count(course: Course) -> int:
    """Requests to the slow store so far, of Python and of the JVM; 0 where there is none."""
    path = os.environ.get(REQUESTS)
    return requests(Path(path)).number if path and course.scenario.store_latency else 0
