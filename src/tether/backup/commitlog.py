"""Reads a commit log from its entries, damaged ones included."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.commitcodec import BEGINNING, LogEnd, Numbered, ScannedLog, scan_log
from tether.backup.commits import CommitRecord, CommitSnapshot
from tether.backup.history import CommitHistory
from tether.core.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.commits import LogEntry


class CommitLog(NamedTuple):
    """The content of a commit log, and its unreadable parts."""

    history: CommitHistory
    damaged: list[str]
    """All defects, one text each, also those that another copy repairs."""
    lost: list[str]
    """Places where records are missing for good."""
    end: LogEnd
    began: bool
    """Whether there is any entry at all: a log begins with one."""
    sound: bool
    """Whether it has no defects at all."""

    def reaches(self, end: LogEnd) -> bool:
        """Whether it is at least as long as another reading of it."""
        return self.end.number > end.number or self.end == end


class CommitWriter(ABC):
    """A commit log opened for writing, for any kind of store.

    Args:
        log: What the store holds now.
    """

    def __init__(self, log: CommitLog) -> None:
        self._history, self.end, self._sound = log.history, log.end, log.sound

    def begin(
        self, committed_epoch: Epoch, *, every_epoch: bool, gap: str = "", records: int = 0
    ) -> None:
        """See :meth:`BackupStore.begin_commits`."""
        changed = self._history.set_every_epoch(every_epoch, committed_epoch)
        skipped = records > self.end.number
        if self._sound and not (gap or changed or skipped):
            return
        if gap:
            self._history.mark_gap(gap)
        if skipped:
            self.end = self.end._replace(number=records)
        self._rewrite(committed_epoch)

    @abstractmethod
    def append(self, record: CommitRecord) -> LogEnd:
        """Make a record durable; returns the log's new end."""

    @abstractmethod
    def _rewrite(self, committed_epoch: Epoch) -> int:
        """Replace the log by a snapshot of what is still needed; returns its length in bytes."""


def replay(entries: Iterable[LogEntry | str]) -> CommitHistory:
    """Apply entries in log order; a text stands for records that are lost.

    Example:
        >>> replay([CommitRecord(epoch=0, run="r", slots={}), "garbage"]).gaps
        ['garbage']
    """
    history = CommitHistory()
    for entry in entries:
        if isinstance(entry, str):
            history.mark_gap(entry)
        elif isinstance(entry, CommitRecord):
            history.apply(entry)
        else:
            gaps = history.gaps
            history = CommitHistory.from_snapshot(entry)
            for note in gaps:  # found before the snapshot: who knows what that lacks
                history.mark_gap(note)
    return history


class Joined(NamedTuple):
    """Entries of one log, put in order; a text stands where some are missing."""

    entries: list[LogEntry | str]
    end: LogEnd

    @property
    def lost(self) -> list[str]:
        """What is missing."""
        return [entry for entry in self.entries if isinstance(entry, str)]


def joined(found: Iterable[Numbered], why: str = "") -> Joined:
    """Put entries in order, whichever copy of the log they come from.

    Args:
        found: Entries that could be read; the same one may come several times.
        why: The reason, if known, why entries may be missing.
    """
    records: dict[int, Numbered] = {}
    snapshots: dict[int, Numbered] = {}
    doubtful: set[int] = set()
    for entry in found:
        if isinstance(entry.content, CommitSnapshot):
            snapshots.setdefault(entry.number, entry)
        elif records.setdefault(entry.number, entry).digest != entry.digest:
            doubtful.add(entry.number)
    reason = f" {why}" if why else ""
    entries: list[LogEntry | str] = []
    end = BEGINNING
    if snapshots:
        base = snapshots[max(snapshots)]
        entries, end = [base.content], base.end
    elif records:
        entries = [f"The beginning of the log is missing.{reason}"]
    for number in sorted(number for number in records if number > end.number):
        record = records[number]
        if number > end.number + 1:
            entries.append(f"{_named(end.number + 1, number - 1)} missing.{reason}")
        elif number in doubtful:
            entries.append(f"Record {number} is there twice, with different contents.")
        elif record.previous != end.digest:
            entries.append(f"Record {number} does not follow on the one before it.")
        entries.append(record.content)
        end = record.end
    return Joined(entries, end)


def _named(first: int, last: int) -> str:
    return f"Record {first} is" if first == last else f"Records {first} to {last} are"


def read_copies(copies: Mapping[str, bytes | None]) -> CommitLog:
    """Read a log of which there are several copies, in the order in which they are written.

    A record counts once it is durable in all copies. So if copies differ the longest is right: a record
    in only one copy was about to count, or is damaged in the others.

    Args:
        copies: Bytes by name of the copy; ``None`` where there is none.
    """
    there = {name: data for name, data in copies.items() if data is not None}
    if not there:
        return CommitLog(CommitHistory(), [], [], BEGINNING, began=False, sound=False)
    scans = {name: scan_log(data) for name, data in there.items()}
    damaged = [f"{name} is missing." for name in copies if name not in there]
    for name, scan in scans.items():
        notes = [*scan.damage, *([scan.tail] if scan.tail else [])]
        damaged += [f"{name}: {note}" for note in notes]
    in_order = joined((e for scan in scans.values() for e in scan.entries), "; ".join(damaged))
    if (lost := _lost_tail(scans, in_order.end)) is not None:
        in_order.entries.append(lost)
    ends = {name: scan.entries[-1].end if scan.entries else None for name, scan in scans.items()}
    damaged += [
        f"{name} lacks entries at its end."
        for name, scan in scans.items()
        if scan.clean and ends[name] != in_order.end
    ]
    return CommitLog(
        replay(in_order.entries),
        [*damaged, *(note for note in in_order.lost if note not in damaged)],
        in_order.lost,
        in_order.end,
        began=any(scan.entries for scan in scans.values()),
        sound=not damaged and not in_order.lost,
    )


def _lost_tail(scans: Mapping[str, ScannedLog], end: LogEnd) -> str | None:
    """The defect after the last record, unless that is an unfinished append."""
    ragged, whole = [], 0
    for name, scan in scans.items():
        reaches = scan.entries[-1].end if scan.entries else BEGINNING
        if reaches != end:
            continue  # a longer copy repairs the defect
        if scan.tail:
            ragged.append((f"{name}: {scan.tail}", scan.torn))
        else:
            whole += 1
    if whole or all(torn for _, torn in ragged):
        return None
    return "; ".join(note for note, _ in ragged)


def older_half(log: bytes) -> CommitLog:
    """What a store with delayed reads might show of a log: the older half of its entries."""
    entries = scan_log(log).entries
    in_order = joined(entries[: (len(entries) + 1) // 2])
    history = replay(in_order.entries)
    return CommitLog(history, [], [], in_order.end, began=bool(entries), sound=False)
