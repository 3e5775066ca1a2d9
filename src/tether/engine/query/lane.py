"""A lane: operators of a query that run at one pace, and their books.

A query is one lane, or two where a feedback loop may drift apart (SSP and ASP). Each lane has its own
commit log and its own number of committed epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tether.core.ids import Epoch, Slot, epoch_after
from tether.engine.ports import SystemClock
from tether.engine.query.aside import Aside
from tether.engine.query.ledger import Ledger
from tether.engine.query.log_opening import leaves_every_epoch
from tether.engine.writing.items import unpack_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.backup.mark import Mark
    from tether.backup.opening import StoreAddress
    from tether.backup.recorded import CompleteSnapshot
    from tether.core.losses import LossRecord
    from tether.engine.operators import QueryOperator, QuerySettings
    from tether.engine.ports import Clock, Reports, Store
    from tether.engine.query.clocks import Clocks
    from tether.engine.query.commit_log import OpenCommitLog, RunIds
    from tether.engine.query.feedback_box import FeedbackBox
    from tether.engine.query.lineages import Lineages
    from tether.engine.query.snapshot_keeper import Held, SnapshotKeeper
    from tether.engine.slot.program import HeldStore


@dataclass(frozen=True, kw_only=True)
class LanePlan:
    """A lane before its first epoch.

    Args:
        operators: By name, upstream ones first.
        settings: What holds for the whole query.
        store: Its backup store, locked by this query; None where nothing is backed up.
        address: How slots reach that store.
        run_id: Id of this driver's run.
        reports: The query's account of itself.
        feedback: Where feedback items wait for their receivers; shared by the lanes of a query.
        marks: Further places where the end of its commit log is stored, the most reliable one first.
        all_slots: Whether every epoch leaves a record of all slots, so that a restart knows how far
            this lane has come.
    """

    operators: Mapping[str, QueryOperator]
    settings: QuerySettings
    store: Store | None
    address: StoreAddress | HeldStore | None
    run_id: str
    reports: Reports
    feedback: FeedbackBox
    marks: Sequence[Mark] = ()
    all_slots: bool = False
    clock: Clock = field(default_factory=SystemClock)
    ledgers: Mapping[str, Ledger] = field(init=False)
    """Facts about each operator's slots; can be read at any time, from any thread."""

    def __post_init__(self) -> None:
        ledgers = {
            name: Ledger(name, one.slots, one.policy, one.placement, one.window)
            for name, one in self.operators.items()
        }
        object.__setattr__(self, "ledgers", ledgers)

    @property
    def every_epoch(self) -> bool:
        """Whether every epoch leaves a commit record."""
        return self.all_slots or leaves_every_epoch(p.policy for p in self.operators.values())


@dataclass(frozen=True, kw_only=True)
class Books:
    """The books of a running lane. Each entry has one owner, which alone changes it."""

    ids: RunIds
    first_epoch: Epoch
    """The query's very first epoch."""
    operators: Mapping[str, QueryOperator]
    log: OpenCommitLog | None
    """The commit log; None if nothing is backed up."""
    clocks: Clocks
    lineages: Lineages
    ledgers: Mapping[str, Ledger]
    feedback: FeedbackBox
    keeper: SnapshotKeeper | None
    """Coordinates snapshots, where the policy takes any."""
    reports: Reports
    aside: Aside = field(default_factory=Aside)
    """How this run differs from an ordinary one."""

    @property
    def written(self) -> OpenCommitLog | None:
        """The log, where this run may write to it."""
        return self.log if self.aside.records else None

    def in_doubt(self, operator: QueryOperator, epoch: Epoch) -> frozenset[Slot]:
        """Slots that run ``epoch`` next and whose backups may have gaps."""
        if self.log is None:
            return frozenset()
        return self.log.history.in_doubt(operator.name, operator.slots, epoch)

    def newest_snapshot(self, epoch: Epoch) -> CompleteSnapshot | None:
        """The newest complete one from before an epoch."""
        return None if self.log is None else self.log.history.complete_snapshot(epoch)

    def held(self) -> Held:
        """What a snapshot of the epoch that was just committed contains in addition to the states.

        In epochs, the items in flight at a barrier are those that wait for the next epoch (ABS 2015
        §4.3).
        """
        if self.keeper is None or self.keeper.barrier is None:
            return {}
        held: Held = dict(self.clocks.held())
        for name in self.operators:
            waiting = self.feedback.waiting(name)
            if waiting is not None and waiting.items:
                held[name] = list(unpack_items(waiting.items))
        return held

    def resume(self, committed: Epoch, *, short: bool = False) -> None:
        """Take over feedback, clocks and snapshots as of the end of an epoch.

        Args:
            committed: The epoch.
            short: Whether the log lacks records. Then the feedback of the epoch is known only from a
                snapshot, and a query that can go back does so.
        """
        if self.log is None:
            return
        store, history = self.log.store, self.log.history
        operators = list(self.operators.values())
        self.clocks.resume(history, epoch_after(committed))
        snapshot = self.newest_snapshot(epoch_after(committed))
        if self.keeper is not None:
            self.keeper.resume(snapshot, self.first_epoch)
        if self.keeper is not None and snapshot is not None and snapshot.epoch == committed:
            self.feedback.put_back(store, history, snapshot, operators)
            self.clocks.restore(store, snapshot)
        elif self.keeper is None or not short:
            self.tell_lost_feedback(self.feedback.resume(store, history, operators, committed))

    def tell_lost_feedback(self, losses: Sequence[LossRecord]) -> None:
        """Feedback items were lost with an earlier driver."""
        cause = "the driver died before it was durable"
        for loss in losses:
            self.reports.add("feedback-lost", cause, loss.epoch, items=loss.items)
        self.note_feedback()

    def note_feedback(self) -> None:
        """Let the ledgers know what feedback was lost, and what would be lost now."""
        for name, one in self.operators.items():
            if one.feedback_to is not None:
                self.ledgers[name].note_feedback(*self.feedback.told(name))
