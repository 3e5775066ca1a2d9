"""The commit log of an object store: one object for each record, folded into snapshots.

``commits/<number>.commit`` holds one record, ``commits/<number>.snapshot`` all that can still
matter of the records up to that number. Numbers have no holes, so a lost object is noticed. There is
only one copy: an object is written as a whole, and the store protects it from damage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.commitcodec import (
    LogEnd,
    Numbered,
    decode_entry,
    digest_of,
    encode_entry,
)
from tether.backup.commitlog import CommitLog, CommitWriter, joined, replay
from tether.core.errors import BackupError, BackupLockedError, BackupUnreadableError
from tether.core.ids import Epoch, epoch_before

if TYPE_CHECKING:
    from tether.backup.commits import CommitRecord
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
        # The driver has folded the log between the listing and the reading: list again.
    return _read_once(folder)[0]


def _read_once(folder: ObjectFolder) -> tuple[CommitLog, bool]:
    listing = _listing(folder)
    reading = _Reading(folder)
    done = -1
    for number in sorted(listing.snapshots, reverse=True):
        if reading.read([(number, _snapshot(number))]):
            done = number
            break
    wanted = [number for number in sorted(listing.commits) if number > done]
    reading.read([(number, _commit(number)) for number in wanted])
    in_order = joined(reading.entries, " ".join(reading.damaged))
    newest = max([-1, *listing.commits, *listing.snapshots])
    if newest > in_order.end.number:
        in_order.entries.append(" ".join(reading.damaged) or "The newest record is missing.")
        in_order = in_order._replace(end=LogEnd(newest, in_order.end.digest))
    log = CommitLog(
        replay(in_order.entries),
        [*reading.damaged, *(note for note in in_order.lost if note not in reading.damaged)],
        in_order.lost,
        in_order.end,
        began=newest >= 0,
        sound=bool(reading.entries) and not (reading.damaged or in_order.lost),
    )
    return log, reading.vanished


class _Reading:
    """Readable entries, and the defects of the others."""

    def __init__(self, folder: ObjectFolder) -> None:
        self._folder = folder
        self.entries: list[Numbered] = []
        self.damaged: list[str] = []
        self.vanished = False
        """Whether a listed object had been deleted when it was read."""

    def read(self, wanted: list[tuple[int, str]]) -> bool:
        """Read some entries by number and name, in order; tell whether all could be."""
        found = self._folder.read_many([name for _, name in wanted])
        before = len(self.entries)
        for number, name in wanted:
            data = found[name]
            if data is None:
                self.vanished = True
                self.damaged.append(f"{name} is missing.")
                continue
            try:
                entry = decode_entry(data)
            except BackupUnreadableError as error:
                self.damaged.append(f"{name} cannot be read: {error.why}")
                continue
            if entry.number != number:
                self.damaged.append(f"{name} holds entry {entry.number}.")
                continue
            self.entries.append(entry)
        return len(self.entries) - before == len(wanted)


class ObjectCommits(CommitWriter):
    """A commit log opened for writing by the holder of the store's lock.

    A record's number is taken by creating its object. So where the store has conditional puts, a driver
    that has lost its lease without noticing cannot commit beside its successor: the number is taken, and
    it gets an error.

    Args:
        folder: The store.
        fold_every: Records after which a snapshot replaces them.
    """

    def __init__(self, folder: ObjectFolder, fold_every: int) -> None:
        self._folder = folder
        self._fold_every = fold_every
        log = read_log(folder)
        super().__init__(log)
        self._unfolded = len(_listing(folder).commits)

    def append(self, record: CommitRecord) -> LogEnd:
        """Make a record durable; gives the log's new end.

        Raises:
            BackupLockedError: another driver has committed meanwhile.
        """
        if not self._sound:
            self._rewrite(epoch_before(record.epoch))
        data = encode_entry(record, self.end)
        try:
            self._folder.create(_commit(self.end.number + 1), data)
        except FileExistsError as error:
            raise BackupLockedError(
                f"Epoch {record.epoch} was not committed.",
                why="Another driver has taken over the backup store and committed meanwhile.",
                do="Stop this query; the other one goes on.",
            ) from error
        self._history.apply(record)
        self.end = LogEnd(self.end.number + 1, digest_of(data))
        self._unfolded += 1
        if self._unfolded >= self._fold_every:
            self._fold(record.epoch)
        return self.end

    def _folded(self, committed_epoch: Epoch) -> bytes:
        return encode_entry(self._history.snapshot(committed_epoch), self.end)

    def _rewrite(self, committed_epoch: Epoch) -> int:
        # Replaced, not created: there may be a snapshot of this number with less content.
        data = self._folded(committed_epoch)
        self._folder.replace(_snapshot(self.end.number), data)
        self._sound = True
        return len(data)

    def _fold(self, epoch: Epoch) -> None:
        last = self.end.number
        self._unfolded = 0
        try:
            # Spark asks for an epoch only when it has committed the one before.
            self._folder.create(_snapshot(last), self._folded(epoch_before(epoch)))
            listing = _listing(self._folder)
            old = [_commit(number) for number in listing.commits if number <= last]
            old += [_snapshot(number) for number in listing.snapshots if number < last]
            self._folder.delete(old)
        except (BackupError, OSError) as error:
            # The record itself is durable; many small objects only take longer to read.
            _log.warning("The commit log could not be folded: %s", error)
