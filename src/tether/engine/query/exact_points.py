"""Exact states of an approximate query: ends of epochs where all state is saved and nothing is lost.

A twin that heals starts from the newest one. An exact point is recorded as a complete snapshot once the
host has committed its epoch. Its frames are kept until the next one is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.backup.commits import CommitRecord
from tether.backup.names import slot_key
from tether.core.ids import Epoch, SnapshotNumber, epoch_before
from tether.engine.query.commit_entries import slot_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.backup.commits import SlotCommit
    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus
    from tether.engine.query.lane import Books


class ExactPoints:
    """The exact points of one lane.

    Args:
        books: What the lane keeps account of.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        policies = [one.policy for one in books.operators.values()]
        all_heal = all(policy.heal is not None for policy in policies)
        self._policy = policies[0] if all_heal else None
        self._due: tuple[Epoch, dict[str, SlotCommit]] | None = None

    def begin(self, epoch: Epoch) -> None:
        """An epoch begins, so the host has committed the one before: record what is due."""
        log, due = self._books.written, self._due
        self._due = None
        if log is None or due is None or due[0] != epoch - 1:
            return
        at, slots = due
        run = self._books.ids.run
        log.append(CommitRecord(epoch=at, run=run, slots=slots, complete=SnapshotNumber(at)))
        log.drop(epoch_before(epoch))

    def note(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus]) -> None:
        """An epoch is committed on our side: an exact point if all is saved and nothing is lost."""
        if self._policy is None or not self._policy.is_exact_point(epoch):
            return
        unlost = not any(ledger.lossy for ledger in self._books.ledgers.values())
        if unlost and all(status.exact for status in statuses.values()):
            slots = {slot_key(*slot): slot_commit(status) for slot, status in statuses.items()}
            self._due = (epoch, slots)
