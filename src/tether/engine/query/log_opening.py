"""Opens the commit log of a lane, if it is complete or its gaps are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.backup.audit import audit
from tether.backup.mark import LogMark
from tether.core.errors import BackupError, BackupUnreadableError
from tether.core.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tether.backup.audit import Expected
    from tether.backup.commitcodec import LogEnd
    from tether.backup.commitlog import CommitLog
    from tether.backup.frames import FrameHeader, FrameRef
    from tether.backup.mark import Mark
    from tether.backup.opening import StoreAddress
    from tether.backup.protocol import BackupStore
    from tether.policies.policy import Policy


class OpenedLog(NamedTuple):
    """A log that can be continued."""

    end: LogEnd
    told: str
    """Defects that were repaired or accepted; empty if there were none."""
    short: bool
    """Whether records are missing. Resident state may then be newer than anything in the log."""
    frames: list[tuple[FrameRef, FrameHeader | BackupUnreadableError]]
    """All that lie in the store."""


def marks_for(checkpoint: str, lane: int, address: StoreAddress | None) -> list[LogMark]:
    """Further places where the end of a lane's log is stored, the most reliable one first.

    That is Spark's checkpoint, if Python can reach it; and a file beside the log itself, which at least
    shows when records have been deleted.
    """
    if address is None:
        return []
    name = "commits.json" if lane == 0 else f"commits-{lane}.json"
    marks = []
    for url, options in ((f"{checkpoint}/tether", {}), (address.url, address.storage_options)):
        try:
            marks.append(LogMark(url, name, options))
        except Exception:  # noqa: S112 - whatever a driver of a file system raises: not there
            continue
    return marks


def leaves_every_epoch(policies: Iterable[Policy]) -> bool:
    """Whether every epoch is to leave a commit record.

    Under policies that continue from the previous epoch, an older record would give a wrong answer.
    """
    return any(policy.recovery.every_epoch for policy in policies)


def open_log(
    store: BackupStore,
    log: CommitLog,
    policies: Sequence[Policy],
    marks: Sequence[Mark],
    expected: Expected,
    *,
    every_epoch: bool,
    committed_epoch: Epoch,
    accept_damage: bool,
) -> OpenedLog:
    """Compare a log with what is known of it from other places; then make it ready to be written.

    A query that can go back does not need records that are missing at the end: it goes back farther.

    Args:
        store: The log's store, locked.
        log: As it was read.
        policies: Those of the lane's operators.
        marks: Further places where its end is stored.
        expected: What is known from other places.
        every_epoch: Whether every epoch leaves a record from now on.
        committed_epoch: The last epoch that counts.
        accept_damage: Whether to continue, with an infinite bound, although records are missing.

    Raises:
        BackupUnreadableError: Records are missing; nothing was changed.
    """
    known = [mark for mark in marks if _told_anything(mark)]
    frames = list(store.frames())
    problems, records = audit(log, known[0] if known else None, frames, expected)
    gap = ""
    if problems and not expected.goes_back:
        if not (accept_damage and _has_bound(policies)):
            raise _refusal(problems, policies)
        gap = " ".join(problems)
        log.history.mark_gap(gap)
    end = store.begin_commits(committed_epoch, every_epoch=every_epoch, gap=gap, records=records)
    if not every_epoch:
        _keep_mark(store, marks)
    return OpenedLog(end, " ".join(problems or log.damaged), bool(problems), frames)


def _told_anything(mark: Mark) -> bool:
    try:
        return mark.read() is not None
    except BackupError:
        return False


def _keep_mark(store: BackupStore, marks: Sequence[Mark]) -> None:
    """Keep the first mark that can be written: Spark may reach a checkpoint that Python cannot."""
    for mark in marks[:-1]:
        try:
            store.keep_mark(mark)
        except BackupError:
            continue
        return
    for mark in marks[-1:]:
        store.keep_mark(mark)


def _has_bound(policies: Sequence[Policy]) -> bool:
    """Whether the policies have a bound that can be widened; exact policies have none."""
    return not any(policy.recovery.exact for policy in policies)


def _refusal(problems: Sequence[str], policies: Sequence[Policy]) -> BackupUnreadableError:
    do = "Put the newest copies of backup and checkpoint back, or start again with both empty."
    if _has_bound(policies):
        do += (
            " Or start with accept_damage=True: the query then goes on from what is left, and tells "
            "an infinite bound for the slots that are restored from it."
        )
    return BackupUnreadableError(
        "Commit records of the backup are missing.",
        why=f"{' '.join(problems)} What is left would restore an older state than the one that "
        "Spark's checkpoint goes on from.",
        do=do,
    )
