"""What a reader may take of an exchange that it has seen up to some entry. Pure, and incremental."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import BackupUnreadableError
from tether.protocols.consistency import START, Replica, Waiting
from tether.sources.exchange.entries import DataFile  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.sources.exchange.entries import Entry


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to take from one file: those with ``first <= tuple time < end``."""

    file: DataFile
    entry: int
    row: int
    """Number of the file's first row within its epoch."""
    first: int
    end: int


class ReplicaView:
    """One replica of an input, as far as it was read.

    Args:
        bucket: Size of a bucket, in units of tuple time.
        first: Number of the first entry that is to be taken in.
    """

    def __init__(self, bucket: int, first: int = 0) -> None:
        self._bucket = bucket
        self.first = first
        self._entries: list[Entry] = []
        self._waiting: list[Waiting | None] = []
        self._boundary = self._reach = START * bucket
        self._boundary_at = first
        self.ahead_by: float | None = None
        """How far the writer's clock is ahead of ours at least, seconds; negative: how far it is behind,
        or how long its entries take to come. None: nothing was seen."""

    @property
    def next(self) -> int:
        """Number of the entry that is to be taken in next."""
        return self.first + len(self._entries)

    @property
    def boundary(self) -> int:
        """No stable row below this tuple time will come."""
        return self._boundary

    def take(self, entry: Entry, now: float) -> None:
        """One more entry, seen at this time."""
        if entry.number != self.next:
            raise BackupUnreadableError(
                f"An exchange's entry {self.next} says that it is number {entry.number}.",
                why="Files of the exchange were moved or changed by somebody.",
                do="Restore the exchange from a copy, or begin with another one.",
            )
        self._entries.append(entry)
        # The writer's boundary survives our restart; a clock that is ahead must not delay rows.
        arrived = min(now, entry.written_at)
        self._waiting.append(_waiting(entry, arrived, self._bucket) if entry.files else None)
        ahead = entry.written_at - now
        self.ahead_by = ahead if self.ahead_by is None else max(self.ahead_by, ahead)
        if entry.boundary is not None:
            if entry.kind != "tentative" and entry.boundary > self._boundary:
                self._boundary, self._boundary_at = entry.boundary, entry.number
            self._reach = max(self._reach, self._boundary, entry.boundary)
        if entry.done:  # tentative rows were all corrected, or withdrawn
            self._reach = self._boundary

    def known(self) -> Replica:
        """All that the replica has given so far, in buckets."""
        # Floor division: a bucket is complete when the boundary is at its end.
        return Replica(complete=self._boundary // self._bucket, reach=self._reach // self._bucket)

    def waiting(self, stable: int) -> Iterator[Waiting]:
        """Rows that are not below a bucket."""
        return (each for each in self._waiting if each is not None and each.last >= stable)

    def needed_from(self, stable: int) -> int:
        """Number of the first entry that is still of use where all buckets below one are done.

        A reader that begins there again knows the same boundary.
        """
        for number, each in enumerate(self._waiting, self.first):
            # Later entries correct a tentative one, so only its rows tell when it is finished.
            if each is not None and each.last >= stable:
                return min(number, self._boundary_at)
        return min(self.next, self._boundary_at)

    def between(self, first: int, end: int) -> list[Entry] | None:
        """Entries from one number to below another; None where not all of them are held."""
        if first < self.first or end > self.next:
            return None
        return self._entries[first - self.first : end - self.first]

    def forget_below(self, number: int) -> None:
        """Drop entries that are of no use any more."""
        drop = max(0, min(number, self.next) - self.first)
        del self._entries[:drop], self._waiting[:drop]
        self.first += drop


def _waiting(entry: Entry, arrived: float, bucket: int) -> Waiting:
    low = min(each.low for each in entry.files)
    high = max(each.high for each in entry.files)
    return Waiting(first=low // bucket, last=high // bucket, arrived=arrived)


def rows_between(
    entries: Iterable[Entry], first: int, end: int, *, tentative: bool
) -> Iterator[Wanted]:
    """Which rows of these entries count, of tuple times from ``first`` to below ``end``.

    It depends on nothing else: asking again gives the same.

    Args:
        entries: All entries from the first that may hold such rows up to the last that was seen.
        first: Lowest tuple time.
        end: First tuple time that is not asked for.
        tentative: Whether tentative rows that were not withdrawn count too.
    """
    taken = list(entries)
    withdrawn = START
    live: dict[int, int] = {}
    for entry in reversed(taken):
        if entry.kind == "tentative":
            live[entry.number] = withdrawn
        elif entry.boundary is not None:  # below it stable rows are all there
            withdrawn = max(withdrawn, entry.boundary)
        if entry.undo is not None:
            withdrawn = max(withdrawn, entry.undo.before)
    for entry in taken:
        if entry.kind == "tentative" and not tentative:
            continue
        low = max(first, live.get(entry.number, first))
        row = 0
        for each in entry.files:
            if each.high >= low and each.low < end and low < end:
                yield Wanted(file=each, entry=entry.number, row=row, first=low, end=end)
            row += each.rows
