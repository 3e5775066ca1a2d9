"""Whether a commit log is complete, compared with what Spark, its mark and the frames say.

A log cannot show by itself that its end is missing. A log that ends early would restore an older state,
which no policy may use. So before anything is restored or changed, all other records of the log's length
are compared:

* Spark's checkpoint: which epoch is to be run next. The log cannot be ahead of it, nor, where every
  epoch leaves a record, behind it.
* The mark, where one is kept: how many records there were.
* The frames that lie in the store: how many records there were when each was written. And, where
  neither Spark nor a mark can vouch for the end of the log: whether any frame comes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.backup.frames import FrameHeader
from tether.core.errors import BackupUnreadableError
from tether.core.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.backup.commitcodec import LogEnd
    from tether.backup.commitlog import CommitLog
    from tether.backup.frames import FrameRef
    from tether.backup.mark import Mark


class Expected(NamedTuple):
    """What is known of a log from other places."""

    next_epoch: Epoch
    """The epoch that Spark is about to run."""
    first_epoch: Epoch
    """The first one that ever ran on the store."""
    lag: int = 0
    """By how many epochs a log in which every epoch leaves a record may be behind Spark."""
    goes_back: bool = False
    """Whether the query goes back to older epochs at times, so that the log may be ahead of Spark."""


class Audit(NamedTuple):
    """The result of the comparison."""

    problems: list[str]
    """Why records must be missing; empty if the log is complete."""
    records: int
    """The largest number of records that any source knows of."""


def audit(
    log: CommitLog,
    mark: Mark | None,
    frames: Iterable[tuple[FrameRef, FrameHeader | BackupUnreadableError]],
    expected: Expected,
) -> Audit:
    """Compare a log with all sources, to see whether records are missing.

    Args:
        log: As it was read.
        mark: The mark of its end, if there is one.
        frames: All frames in its store.
        expected: What is known from elsewhere.
    """
    headers = [(ref, header) for ref, header in frames if isinstance(header, FrameHeader)]
    told = _told(mark)
    records = max([log.end.number, *(header.records for _, header in headers)])
    problems = [*log.lost, *_against_spark(log, expected)]
    if told is not None:
        records = max(records, told.number)
        if told.number == log.end.number and told.digest != log.end.digest:
            problems.append(f"Record {told.number} is not the one that was written last.")
    if records > log.end.number:
        problems.append(
            f"There were {records} commit records, and {log.end.number} of them are found."
        )
    vouched_for = told is not None or log.history.every_epoch_from is not None
    if not problems and not vouched_for:
        problems += _against_frames(log, headers, expected)
    return Audit(problems, records)


def _told(mark: Mark | None) -> LogEnd | None:
    """The log's end according to its mark; None where that cannot be read."""
    try:
        return mark.read() if mark is not None else None
    except BackupUnreadableError:
        return None


def _against_spark(log: CommitLog, expected: Expected) -> list[str]:
    next_epoch, last = expected.next_epoch, log.history.last_epoch
    if next_epoch <= expected.first_epoch and last is None:
        return []
    if not log.began:
        return [f"Spark is about to run epoch {next_epoch}, and there is no commit log."]
    if last is not None and last > next_epoch and not expected.goes_back:
        return [
            f"The commit log has come to epoch {last}, but Spark's checkpoint is about to run epoch "
            f"{next_epoch}: an older copy of the checkpoint is in place."
        ]
    begun = log.history.every_epoch_from
    if begun is not None:
        due = begun if last is None else max(begun, last + 1)
        if due < next_epoch - expected.lag:
            newest = "there is none" if last is None else f"the newest is of epoch {last}"
            return [
                f"Every epoch leaves a record, and Spark is about to run epoch {next_epoch}; but "
                f"{newest}."
            ]
    return []


def _against_frames(
    log: CommitLog, headers: Iterable[tuple[FrameRef, FrameHeader]], expected: Expected
) -> list[str]:
    """Backups of committed epochs after the last record: their records may be missing.

    It is not certain, because a failed task, or a backup that was still being written, leaves such a
    frame too.
    """
    last = log.history.last_epoch if log.history.last_epoch is not None else -1
    later = [header.epoch for _, header in headers if last < header.epoch < expected.next_epoch]
    if not later:
        return []
    return [
        f"There are backups up to epoch {max(later)}, but no commit record after epoch {last}, and "
        "nothing is left that tells whether there was one."
    ]
