"""The end of a commit log, stored in another place than the log.

A log that was cut at the end of a record, or replaced by an earlier version, looks like a correct, older
log. Where every epoch leaves a record, Spark's own count of epochs shows that. Where only epochs with a
backup do, this mark shows it: it is kept in Spark's checkpoint, so that even a backup directory that was
restored to an earlier version is noticed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tether.backup.commitcodec import LogEnd
from tether.backup.files import explained, make_folder, read_whole, replace_durably
from tether.backup.objectio import ObjectFolder
from tether.backup.places import local_path
from tether.backup.sealed import seal, unseal
from tether.core.errors import BackupUnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mark(Protocol):
    """A second place where the end of a commit log is stored."""

    def write(self, end: LogEnd) -> None:
        """Store the log's end."""
        ...

    def read(self) -> LogEnd | None:
        """How far the log went; ``None`` where nothing was ever told."""
        ...


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: int
    digest: str


class LogMark:
    """A small file that names the newest record of a commit log.

    It is written after the record and before the commit is reported as done. So after a crash it is at
    most one record behind, and never ahead.

    Args:
        url: Path or URL of its folder.
        name: Its name there.
        options: For fsspec's file system.

    Raises:
        BackupError, BadValueError: the place cannot be reached.

    Example:
        >>> mark = LogMark("memory://doctest-mark", "commits.json")
        >>> mark.read() is None
        True
        >>> mark.write(LogEnd(3, b"12345678"))
        >>> mark.read().number
        3
    """

    def __init__(self, url: str, name: str, options: Mapping[str, Any] | None = None) -> None:
        self._name, self._path = name, local_path(url)
        self._folder = ObjectFolder(url, options or {}) if self._path is None else None

    def write(self, end: LogEnd) -> None:
        """Store the log's end durably."""
        data = seal(_Content(end.number, end.digest.hex()))
        if self._folder is not None:
            self._folder.replace(self._name, data)
            return
        assert self._path is not None
        with explained("The mark of the commit log could not be written.", self._path / self._name):
            make_folder(self._path)
            replace_durably(self._path / self._name, data)

    def read(self) -> LogEnd | None:
        """How far the log went; ``None`` where nothing was ever told.

        Raises:
            BackupUnreadableError: it is damaged.
        """
        data = self._read()
        if data is None:
            return None
        try:
            content = msgspec.convert(unseal(data), _Content)
            return LogEnd(content.records, bytes.fromhex(content.digest))
        except (ValueError, msgspec.ValidationError) as error:
            raise BackupUnreadableError(
                f"The mark of the commit log, {self._name}, cannot be read.",
                why=f"It is damaged: {error}.",
                do="Nothing if the log itself is whole.",
            ) from error

    def _read(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            if self._folder is not None:
                return self._folder.read(self._name)
            assert self._path is not None
            path = self._path / self._name
            with explained("The mark of the commit log could not be read.", path):
                return read_whole(path) if path.exists() else None
        return None
