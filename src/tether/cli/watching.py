"""What can be seen of a running query from outside: its checkpoint directory and its backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.backup.opening import open_store
from tether.core.ids import Epoch, Failures, Slot

if TYPE_CHECKING:
    from pathlib import Path


def committed_epochs(checkpoint: Path) -> int:
    """How many epochs Spark has committed: one more than the number of the newest."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    return max(numbers, default=-1) + 1


def failures_in(backup: str) -> dict[str, Failures]:
    """K of every slot that the commit log of a backup store knows."""
    history = open_store(backup).read_commits().history
    counts = {}
    for key in history.slots:
        operator, _, slot = key.rpartition("/")
        counts[key] = history.slot_facts(operator, Slot(int(slot)), Epoch(1 << 62)).failures
    return counts
