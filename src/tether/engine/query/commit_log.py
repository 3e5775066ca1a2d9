"""The commit log of a running query: its writer and its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.backup.sweeping import sweep
from tether.core.ids import Epoch

if TYPE_CHECKING:
    from tether.backup.commitcodec import LogEnd
    from tether.backup.commits import CommitRecord
    from tether.backup.history import CommitHistory
    from tether.engine.ports import Store

DROP_EVERY = 16
"""Number of records between two clean-ups of the backup store."""


class RunIds(NamedTuple):
    """The query and the run that write the log."""

    query: str
    """Id of the query, the same after every restart."""
    run: str
    """Id of this driver's run."""


class OpenCommitLog:
    """The open log, its content, and its end. Only this object appends to it.

    Args:
        store: The store that it is in, locked by this query.
        history: What it says.
        end: Where it ends.
    """

    def __init__(self, store: Store, history: CommitHistory, end: LogEnd) -> None:
        self.store, self.history = store, history
        self._end, self._since_drop = end, 0

    @property
    def end(self) -> LogEnd:
        """Where it ends now. A slot that reads a shorter log has read an old version of it."""
        return self._end

    def append(self, record: CommitRecord) -> None:
        """Make a record durable."""
        self._end = self.store.append_commit(record)
        self.history.apply(record)

    def drop_now_and_then(self, committed: Epoch) -> None:
        """Called after each record: drop frames that are not needed any more, once in a while."""
        self._since_drop += 1
        if self._since_drop >= DROP_EVERY:
            self._since_drop = 0
            self.drop(committed)

    def drop(self, committed: Epoch) -> None:
        """Drop frames that are not needed any more once this epoch is committed."""
        sweep(self.store, self.history, committed)
