"""The commit log of a local store: one file, appended to by one driver, rewritten when long."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from tether.backup.commitcodec import encode_entry, scan_log
from tether.backup.commitlog import CommitLog, replay
from tether.backup.files import append_durably, explained, opened, replace_durably, sync_folder
from tether.core.errors import BackupError

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup.commits import CommitRecord

_log = logging.getLogger(__name__)


def read_log(path: Path) -> CommitLog:
    """Read a commit log without changing it; a missing one is empty."""
    data = b""
    with explained("The commit log cannot be read.", path), contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
    scanned = scan_log(data)
    return replay(scanned.entries, scanned.torn)


class LocalCommitFile:
    """A commit log opened for writing. Only the holder of the store's lock may have one.

    Opening cuts a torn tail: the record it was to become never counted. Damage elsewhere is left
    in place, so that it is told again to whoever reads the log later.

    Args:
        path: The log's file.
        compact_bytes: The log is rewritten, with what can still matter only, when it is longer
            than this and has doubled since the last time.
    """

    def __init__(self, path: Path, compact_bytes: int) -> None:
        self._path = path
        self._compact_bytes = compact_bytes
        with explained("The commit log cannot be opened.", path):
            new = not path.exists()
            with opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
                scanned = scan_log(path.read_bytes())
                if scanned.torn:
                    _log.warning("%s: %s It was cut.", path, scanned.torn)
                    os.ftruncate(descriptor, scanned.clean_bytes)
                    os.fsync(descriptor)
            if new:
                sync_folder(path.parent)
        self._history = replay(scanned.entries).history

    def append(self, record: CommitRecord) -> None:
        """Make a record durable."""
        data = encode_entry(record)
        with (
            explained(f"The commit of epoch {record.epoch} could not be written.", self._path),
            opened(self._path, os.O_WRONLY) as descriptor,
        ):
            size = append_durably(descriptor, [data]) + len(data)
        self._history.apply(record)
        if size > self._compact_bytes:
            self._compact(record.epoch, size)

    def _compact(self, epoch: int, size: int) -> None:
        # Spark asks for an epoch only when it has committed the one before.
        data = encode_entry(self._history.snapshot(committed_epoch=epoch - 1))
        try:
            with explained("The commit log could not be compacted.", self._path):
                replace_durably(self._path, data)
        except BackupError as error:
            # The record itself is durable, so the epoch is committed; a long log only costs room.
            _log.warning("%s", error)
            self._compact_bytes = max(self._compact_bytes, 2 * size)
        else:
            self._compact_bytes = max(self._compact_bytes, 2 * len(data))
