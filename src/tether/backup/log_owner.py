"""The part of a store that writes its commit log; only for the holder of the lock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tether.backup.protocol import require_lock

if TYPE_CHECKING:
    from tether.backup.commitcodec import LogEnd
    from tether.backup.commitlog import CommitWriter
    from tether.backup.commits import CommitRecord
    from tether.backup.mark import Mark
    from tether.backup.protocol import HeldLock
    from tether.core.ids import Epoch


class LogOwner(ABC):
    """Writes the commit log of a store of any kind."""

    def __init__(self) -> None:
        self._lock: HeldLock | None = None
        self._commits: CommitWriter | None = None
        self._mark: Mark | None = None

    @abstractmethod
    def _open_commits(self) -> CommitWriter:
        """Read the log, to append to it."""

    def begin_commits(
        self, committed_epoch: Epoch, *, every_epoch: bool, gap: str = "", records: int = 0
    ) -> LogEnd:
        """Make the log ready to be written to; see :meth:`BackupStore.begin_commits`."""
        require_lock(self._lock, "open the commit log")
        self._commits = self._open_commits()
        self._commits.begin(committed_epoch, every_epoch=every_epoch, gap=gap, records=records)
        return self._commits.end

    def keep_mark(self, mark: Mark) -> None:
        """Store the log's end in a second place; see :meth:`BackupStore.keep_mark`."""
        require_lock(self._lock, "open the commit log")
        if self._commits is None:
            self._commits = self._open_commits()
        mark.write(self._commits.end)
        self._mark = mark

    def append_commit(self, record: CommitRecord) -> LogEnd:
        """Make a record durable; see :meth:`BackupStore.append_commit`."""
        require_lock(self._lock, f"commit epoch {record.epoch}")
        if self._commits is None:
            self._commits = self._open_commits()
        try:
            end = self._commits.append(record)
            if self._mark is not None:
                self._mark.write(end)
            return end
        except BaseException:
            self._commits = None  # read the log again: this attempt may have written to it
            raise

    def _owned_by(self, lock: HeldLock) -> None:
        """Forget what is known of the log, because another driver may have written to it since."""
        self._lock, self._commits, self._mark = lock, None, None
