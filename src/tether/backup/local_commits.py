"""The commit log of a local store: two copies, appended to by one driver, rewritten when long.

A record counts once both copies have it on disk. So a damaged, shortened, outdated or deleted file is
repaired from the other one, and a tail in only one of them is known to be an unfinished append.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from tether.backup.commitcodec import LogEnd, digest_of, encode_entry
from tether.backup.commitlog import CommitLog, CommitWriter, read_copies
from tether.backup.files import append_durably, explained, opened, read_whole, replace_durably
from tether.core.errors import BackupError
from tether.core.ids import Epoch, epoch_before

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup.commits import CommitRecord

_log = logging.getLogger(__name__)
LOG, COPY = "commits.log", "commits.copy"


def read_log(root: Path) -> CommitLog:
    """Read a commit log without changing it; a missing one is empty."""
    copies: dict[str, bytes | None] = {}
    for name in (LOG, COPY):
        with explained("The commit log cannot be read.", root / name):
            copies[name] = None
            with contextlib.suppress(FileNotFoundError):
                copies[name] = read_whole(root / name)
    return read_copies(copies)


class LocalCommits(CommitWriter):
    """A commit log opened for writing. Only the holder of the store's lock may have one.

    Args:
        root: The store's directory.
        compact_bytes: The log is rewritten, with only what is still needed, when it is longer than this
            and has doubled since the last time.
    """

    def __init__(self, root: Path, compact_bytes: int) -> None:
        self._paths = [root / LOG, root / COPY]
        self._compact_bytes = compact_bytes
        log = read_log(root)
        super().__init__(log)
        for note in log.damaged:
            _log.warning("The commit log in %s: %s", root, note)

    def append(self, record: CommitRecord) -> LogEnd:
        """Make a record durable; returns the log's new end."""
        data = encode_entry(record, self.end)
        if not self._sound:
            self._rewrite(epoch_before(record.epoch))
        size = 0
        for path in self._paths:
            with (
                explained(f"The commit of epoch {record.epoch} could not be written.", path),
                opened(path, os.O_WRONLY) as descriptor,
            ):
                size = append_durably(descriptor, [data]) + len(data)
        self._history.apply(record)
        self.end = LogEnd(self.end.number + 1, digest_of(data))
        if size > self._compact_bytes:
            self._compact(record.epoch, size)
        return self.end

    def _compact(self, epoch: Epoch, size: int) -> None:
        try:
            # Spark asks for an epoch only when it has committed the one before.
            size = self._rewrite(epoch_before(epoch))
        except BackupError as error:
            # The record itself is durable, so the epoch is committed; a long log only takes space.
            _log.warning("%s", error)
        self._compact_bytes = max(self._compact_bytes, 2 * size)

    def _rewrite(self, committed_epoch: Epoch) -> int:
        """Replace both copies by a snapshot; a crash in between leaves one of each, which agree."""
        data = encode_entry(self._history.snapshot(committed_epoch), self.end)
        for path in self._paths:
            with explained("The commit log could not be rewritten.", path):
                replace_durably(path, data)
        self._sound = True
        return len(data)
