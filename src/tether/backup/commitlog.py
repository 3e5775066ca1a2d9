"""From the entries of a commit log to what they mean, damage included."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.backup.commits import CommitRecord
from tether.backup.history import CommitHistory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.backup.commits import LogEntry


class CommitLog(NamedTuple):
    """What a commit log says, and what of it could not be read (one text for each place)."""

    history: CommitHistory
    damaged: list[str]


def replay(entries: Iterable[LogEntry | str], torn: str = "") -> CommitLog:
    """Apply entries in log order; a text stands for something that could not be read.

    A torn tail is told but is no gap: the commit that it was to become never returned, so Spark
    has not committed its epoch and will run it again.

    Example:
        >>> log = replay([CommitRecord(epoch=0, run="r", slots={}), "garbage"], "half a record")
        >>> log.damaged, log.history.gaps
        (['garbage', 'half a record'], ['garbage'])
    """
    history = CommitHistory()
    for entry in entries:
        if isinstance(entry, str):
            history.mark_gap(entry)
        elif isinstance(entry, CommitRecord):
            history.apply(entry)
        else:
            history = CommitHistory.from_snapshot(entry)
    return CommitLog(history, [*history.gaps, *([torn] if torn else [])])
