"""The commit log of an object store: one object for each record, folded into snapshots.

``commits/<number>.commit`` holds one record, ``commits/<number>.snapshot`` all that can still
matter of the records up to that number. Numbers have no holes, so a lost object is noticed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.commitcodec import decode_entry, encode_entry
from tether.backup.commitlog import CommitLog, replay
from tether.core.errors import BackupError, BackupLockedError, BackupUnreadableError

if TYPE_CHECKING:
    from tether.backup.commits import CommitRecord, LogEntry
    from tether.backup.objectio import ObjectFolder

_log = logging.getLogger(__name__)
COMMITS = "commits"
_READ_TRIES = 3


class _Listing(NamedTuple):
    commits: list[int]
    snapshots: list[int]


def _commit(number: int) -> str:
    return f"{COMMITS}/{number:012d}.commit"


def _snapshot(number: int) -> str:
    return f"{COMMITS}/{number:012d}.snapshot"


def _listing(folder: ObjectFolder) -> _Listing:
    found = _Listing([], [])
    for name in folder.sizes(COMMITS):
        number, _, kind = name.removeprefix(f"{COMMITS}/").partition(".")
        if number.isdecimal() and kind in ("commit", "snapshot"):
            (found.commits if kind == "commit" else found.snapshots).append(int(number))
    return found


def read_log(folder: ObjectFolder) -> CommitLog:
    """Read the commit log of an object store."""
    for _ in range(_READ_TRIES - 1):
        log, vanished = _read_once(folder)
        if not vanished:
            return log
        # The driver folded the log between our listing and our reading: look again.
    return _read_once(folder)[0]


def _read_once(folder: ObjectFolder) -> tuple[CommitLog, bool]:
    listing = _listing(folder)
    entries: list[LogEntry | str] = []
    vanished = False
    done = -1
    for number in sorted(listing.snapshots, reverse=True):
        entry = _decoded(_snapshot(number), folder.read_many([_snapshot(number)]))
        entries.append(entry or f"{_snapshot(number)} is missing.")
        vanished = vanished or entry is None
        if entry and not isinstance(entry, str):
            done = number
            # What is damaged among newer snapshots comes after this one.
            entries.reverse()
            break
    wanted = [number for number in sorted(listing.commits) if number > done]
    found = folder.read_many([_commit(number) for number in wanted])
    for number in wanted:
        if number > done + 1:
            entries.append(f"{_commit(done + 1)} to {_commit(number - 1)} are missing.")
        entry = _decoded(_commit(number), found)
        entries.append(entry or f"{_commit(number)} is missing.")
        vanished = vanished or entry is None
        done = number
    return replay(entries), vanished


def _decoded(name: str, found: dict[str, bytes | None]) -> LogEntry | str | None:
    data = found[name]
    if data is None:
        return None
    try:
        return decode_entry(data)
    except BackupUnreadableError as error:
        return f"{name} cannot be read: {error.why}"


class ObjectCommits:
    """A commit log opened for writing by the holder of the store's lock.

    A record's number is taken by creating its object. Where the store has conditional puts, a
    driver that lost its lease without noticing therefore cannot commit beside its successor: the
    number is taken, and it is told so.

    Args:
        folder: The store.
        fold_every: Records after which a snapshot replaces them.
    """

    def __init__(self, folder: ObjectFolder, fold_every: int) -> None:
        self._folder = folder
        self._fold_every = fold_every
        listing = _listing(folder)
        self._next = 1 + max([-1, *listing.commits, *listing.snapshots])
        self._unfolded = len(listing.commits)
        self._history = read_log(folder).history

    def append(self, record: CommitRecord) -> None:
        """Make a record durable.

        Raises:
            BackupLockedError: another driver has committed meanwhile.
        """
        try:
            self._folder.create(_commit(self._next), encode_entry(record))
        except FileExistsError as error:
            raise BackupLockedError(
                f"Epoch {record.epoch} was not committed.",
                why="Another driver has taken over the backup store and committed meanwhile.",
                do="Stop this query; the other one goes on.",
            ) from error
        self._history.apply(record)
        self._next += 1
        self._unfolded += 1
        if self._unfolded >= self._fold_every:
            self._fold(record.epoch)

    def _fold(self, epoch: int) -> None:
        last = self._next - 1
        # Spark asks for an epoch only when it has committed the one before.
        data = encode_entry(self._history.snapshot(committed_epoch=epoch - 1))
        self._unfolded = 0
        try:
            self._folder.create(_snapshot(last), data)
            listing = _listing(self._folder)
            old = [_commit(number) for number in listing.commits if number <= last]
            old += [_snapshot(number) for number in listing.snapshots if number < last]
            self._folder.delete(old)
        except (BackupError, OSError) as error:
            # The record itself is durable; many small objects only cost time to read.
            _log.warning("The commit log could not be folded: %s", error)
