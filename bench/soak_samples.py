"""What a soak watches, and whether it stays flat."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from tether.testing.processes import command_of, descendants

if TYPE_CHECKING:
    from collections.abc import Sequence

MEASURES = {
    "python_mb": ("memory of the Python driver and workers", "MB", 20.0),
    "jvm_heap_mb": ("Java heap after a collection", "MB", 20.0),
    "arena_mb": ("resident state in shared memory", "MB", 1.0),
    "handles": ("open file handles, all processes", "", 20.0),
    "backup_mb": ("backup directory", "MB", 5.0),
    "epoch_seconds": ("an epoch", "s", 0.1),
}
"""By name: what it is, its unit, and growth below which it is flat whatever its size."""

RELATIVE = 0.15
"""Growth over the whole run, as a part of the median, that still counts as flat."""
SETTLING = 0.25
"""Part of the run in which caches fill and Java warms up; not judged."""
MOST_POINTS = 400


@dataclass(frozen=True)
class Verdict:
    """Whether one measure stayed flat."""

    median: float
    growth: float
    """By how much it grew over the judged part of the run, by its robust slope."""
    allowed: float

    @property
    def flat(self) -> bool:
        """Whether it grew by no more than is allowed; shrinking is no fault."""
        return self.growth <= self.allowed


def flatness(times: Sequence[float], values: Sequence[float], absolute: float) -> Verdict:
    """Theil and Sen's slope: the median over all pairs, which single spikes do not move.

    Args:
        times: Seconds since the start.
        values: Samples.
        absolute: Growth that is always allowed.

    Example:
        >>> times = list(range(100))
        >>> flatness(times, [50.0 + (9 if t % 10 == 0 else 0) for t in times], 1.0).flat
        True
        >>> flatness(times, [50.0 + t for t in times], 1.0).flat
        False
    """
    first = times[0] + SETTLING * (times[-1] - times[0])
    points = [(t, v) for t, v in zip(times, values, strict=True) if t >= first]
    step = max(1, len(points) // MOST_POINTS)
    slopes = [(v2 - v1) / (t2 - t1) for (t1, v1), (t2, v2) in combinations(points[::step], 2)]
    median = statistics.median(value for _, value in points)
    growth = statistics.median(slopes) * (points[-1][0] - points[0][0]) if slopes else 0.0
    return Verdict(median, growth, max(absolute, RELATIVE * abs(median)))


def python_megabytes(driver: int) -> float:
    """Memory of the Python processes at and below the driver; what they share counts once."""
    pids = [pid for pid in (driver, *descendants(driver)) if "java" not in command_of(pid)[:200]]
    return sum(_own_kilobytes(pid) for pid in pids) / 1024


def _own_kilobytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    # Arenas are shared mappings, and watched on their own.
    wanted = ("Pss_Anon:",)
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(wanted))


def open_handles(driver: int) -> int:
    """File handles of all processes at and below the driver."""
    total = 0
    for pid in (driver, *descendants(driver)):
        try:
            total += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
    return total


def megabytes_below(directory: Path) -> float:
    """What the files of a directory take, in memory or on disk."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except OSError:
            continue  # removed meanwhile
    return total / (1 << 20)
