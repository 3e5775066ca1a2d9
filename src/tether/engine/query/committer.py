"""The commit of an epoch: the only place that decides what becomes durable, and in which order.

Slots have reported. What a crash right after each step means:

1. Feedback that must not be lost is written. (Crash: no record names it; the epoch is run again.)
2. If any slot wrote a frame or recovered, a commit record names those frames, durably. (Crash: the
   record speaks of an epoch that is run again; the new run's record replaces it.)
3. Frames that are not needed any more are dropped.
4. The books in memory are updated: lineages, feedback, ledgers, the story, snapshots.

Only after that may the host commit the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.backup.commits import CommitRecord
from tether.backup.names import slot_key
from tether.core.ids import Epoch, Slot, SnapshotNumber, epoch_after, epoch_before
from tether.engine.ports import by_operator
from tether.engine.query.commit_entries import InForce, has_news, in_force, slim, slot_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.backup.commits import SlotCommit
    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus
    from tether.engine.query.lane import Books


class Committer:
    """Commits the epochs of one lane.

    Args:
        books: What the lane keeps account of.
        committed_epoch: The last epoch that is committed.
        every_epoch: Whether every epoch leaves a commit record.
        all_slots: Whether a record speaks of all slots, with or without news of them.
    """

    def __init__(
        self, books: Books, *, committed_epoch: Epoch, every_epoch: bool, all_slots: bool
    ) -> None:
        self._books, self._committed_epoch = books, committed_epoch
        self._every_epoch, self._all_slots = every_epoch, all_slots
        self._recorded: dict[str, dict[Slot, InForce]] = {name: {} for name in books.operators}
        """The terms by which the loss of each slot is priced, as the log has them."""

    @property
    def committed_epoch(self) -> Epoch:
        """The last epoch whose commit is durable on our side."""
        return self._committed_epoch

    def go_back(self, epoch: Epoch) -> None:
        """Epochs after this one are run again."""
        self._committed_epoch = epoch

    def resume(self, committed: Epoch) -> None:
        """Continue from the end of an epoch; records of later epochs do not count any more."""
        books = self._books
        self.go_back(committed)
        if books.log is not None:
            self._recorded = {
                name: in_force(books.log.history, one, epoch_after(committed))
                for name, one in books.operators.items()
            }

    def commit(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus]) -> None:
        """Commit an epoch that all slots have reported."""
        slots = {
            slot_key(*slot): slot_commit(status)
            for slot, status in statuses.items()
            if self._all_slots or self._has_news(status)
        }
        slots |= self._books.clocks.advance(statuses, epoch)
        slots |= self._save_feedback(epoch, statuses, flush=False)
        items = {slot_key(*slot): s.logged for slot, s in statuses.items() if s.logged is not None}
        log = self._books.written
        if log is not None:
            # An epoch that was committed before and is run again needs a record even if it wrote nothing
            # this time, so that the record of its first run does not count any more.
            known = log.history.last_epoch
            rerun = known is not None and known >= epoch
            if slots or items or rerun or self._every_epoch:
                run = self._books.ids.run
                log.append(CommitRecord(epoch=epoch, run=run, slots=slots, items=items))
                # Spark has committed the epoch before: otherwise this one would not run.
                log.drop_now_and_then(epoch_before(epoch))
        self._move_on(epoch, statuses)

    def amend(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus]) -> None:
        """Record what slots have made durable after the end of a committed epoch."""
        slots = {slot_key(*slot): slot_commit(status) for slot, status in statuses.items()}
        if epoch == self._committed_epoch:  # waiting feedback is known as of that epoch only
            slots |= self._save_feedback(epoch, statuses, flush=True)
        log = self._books.written
        if log is not None and slots:
            log.append(CommitRecord(epoch=epoch, run=self._books.ids.run, slots=slots, amends=True))
            log.drop_now_and_then(epoch_before(epoch))
        self._move_on(epoch, statuses)

    def heal(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus]) -> None:
        """Record the whole states that a twin has saved: they repair all earlier losses."""
        slots = {slot_key(*slot): slot_commit(status) for slot, status in statuses.items()}
        log = self._books.written
        assert log is not None
        run = self._books.ids.run
        log.append(
            CommitRecord(
                epoch=epoch, run=run, slots=slots, complete=SnapshotNumber(epoch), heals=True
            )
        )
        for ledger in self._books.ledgers.values():
            ledger.healed()
        self._move_on(epoch, statuses)

    def _save_feedback(
        self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus], *, flush: bool
    ) -> dict[str, SlotCommit]:
        books = self._books
        return books.feedback.save(
            books.written.store if books.written is not None else None,
            books.operators.values(),
            statuses,
            epoch=epoch,
            query_id=books.ids.query,
            run_id=books.ids.run,
            flush=flush,
        )

    def _move_on(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus]) -> None:
        books = self._books
        books.lineages.learn(statuses)
        for slot, status in statuses.items():
            self._recorded[slot.operator][slot.slot] = InForce(status.theta, status.under)
        books.feedback.deliver(books.operators.values(), statuses)
        books.note_feedback()
        for name, one in books.operators.items():
            own = {slot: slim(s) for slot, s in by_operator(statuses, name).items()}
            books.ledgers[name].note(own)
            books.ledgers[name].doubt(books.in_doubt(one, epoch_after(epoch)))
        books.reports.add_epoch(statuses.values())
        self._committed_epoch = epoch
        if books.keeper is not None:
            books.keeper.note(epoch, statuses, books.held())

    def _has_news(self, status: SlotStatus) -> bool:
        one = self._books.operators[status.operator]
        recorded = self._recorded[status.operator].get(status.slot)
        return has_news(one.policy, one.window, status, recorded)
