"""A run in epochs, as the Spark runtime has them: jobs, rollbacks, commits; any slot may be lost.

Policies say what is made durable, ``plan_rewind`` says who goes back. Rows that feedback edges carry
are given out in the epoch after.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tether.core.graph import Channel, SlotId
from tether.core.placement import Placement
from tether.policies.barrier import Barrier
from tether.policies.events import BarrierAligned, EpochApplied, Recovered, RowsReady
from tether.policies.instructions import BackUpState, LogRows, TakePart
from tether.policies.memory import SlotPolicyState
from tether.protocols import snapshots as sn
from tether.protocols.rewind import plan_rewind

from .small_graphs import Answer, Case, Item, add, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.policies.policy import Policy

Rows = list[tuple[SlotId, Item]]


@dataclass
class Live:
    """A slot's resident state; ``before`` is the journal: the state at the end of the epoch before."""

    counts: Counter[Item] = field(default_factory=Counter)
    version: int = -1
    policy: Any = field(default_factory=SlotPolicyState)
    before: tuple[Counter[Item], Any] | None = None


@dataclass(frozen=True)
class Backup:
    """A durable state as of the end of an epoch."""

    epoch: int
    counts: Counter[Item]
    policy: Any


class LostError(Exception):
    """Slots lost their state."""


class EpochRun:
    """See the module."""

    def __init__(
        self,
        case: Case,
        epochs: list[list[tuple[Channel, Item]]],
        policy: Policy,
        *,
        seed: int,
        crashes: int,
        plan: Callable[..., Any] = plan_rewind,
        early_commit: bool = False,
    ) -> None:
        self.case, self.epochs, self.policy = case, epochs, policy
        self.random, self.crashes_left = Random(seed), crashes
        self.plan, self.early_commit = plan, early_commit
        self.live: dict[SlotId, Live | None] = {
            slot: Live(policy=policy.initial()) for slot in case.graph.slots
        }
        self.backups: dict[SlotId, list[Backup]] = {slot: [] for slot in self.live}
        self.rows: dict[SlotId, dict[int, list[Item]]] = {slot: {} for slot in self.live}
        self.feedback: dict[int, Rows] = {-1: []}
        self.parts: dict[int, dict[SlotId, Backup]] = {}
        self.pending: list[tuple[int, SlotId, Backup]] = []
        self.snapshot_epochs: dict[int, int] = {}
        self.coordinator = sn.CoordinatorState()
        self.epoch = self.rewinds = self.kept = 0

    def run(self) -> Answer:
        steps = 0
        while self.epoch < len(self.epochs):
            steps += 1
            assert steps < 1000, "the run does not end"
            try:
                self._one_epoch(self.epoch)
                self.epoch += 1
            except LostError:
                self._recover()
        return {slot: Counter(live.counts) for slot, live in self.live.items() if live}

    def _maybe_lose(self) -> None:
        """A crash here, perhaps: of one slot, or of all."""
        if self.crashes_left and self.random.random() < 1 / 15:
            self.crashes_left -= 1
            slots = list(self.live)
            lost = slots if self.random.random() < 1 / 5 else [self.random.choice(slots)]
            for slot in lost:
                self.live[slot] = None
            raise LostError

    # ---- an epoch -------------------------------------------------------------------------------

    def _one_epoch(self, epoch: int) -> None:
        number = self._begin_snapshot(epoch)
        arriving: dict[SlotId, list[Item]] = {slot: [] for slot in self.live}
        for way, item in self.epochs[epoch]:
            arriving[way.receiver].append(item)
        for slot, item in self.feedback[epoch - 1]:
            arriving[slot].append(item)
        back: Rows = []
        counted = {slot: len(written) for slot, written in self.backups.items()}
        try:
            for operator in self.case.graph.in_order():
                slots = [slot for slot in self.live if slot.operator == operator]
                for slot in self.random.sample(slots, len(slots)):
                    self._maybe_lose()
                    self._apply(slot, epoch, arriving[slot], arriving, back)
            for slot, live in self.live.items():
                self._maybe_lose()
                assert live is not None
                self._back_up(slot, live, epoch, arriving[slot], number)
            self._maybe_lose()
        except LostError:
            if not self.early_commit:
                for slot, written in self.backups.items():
                    del written[counted[slot] :]  # no commit record names them
            raise
        self._commit(epoch, back)

    def _apply(
        self,
        slot: SlotId,
        epoch: int,
        rows: list[Item],
        arriving: dict[SlotId, list[Item]],
        back: Rows,
    ) -> None:
        live = self.live[slot]
        assert live is not None
        for item in rows:
            for way, made in sent(self.case, slot, item):
                if way.feedback:
                    back.append((way.receiver, made))
                else:
                    arriving[way.receiver].append(made)
        if live.version >= epoch and self.policy.recovery.rewinds and live.before is None:
            return  # it kept its state: these rows are in it
        if live.version == epoch:
            assert live.before is not None
            live.counts, live.policy = live.before
            live.version = epoch - 1
        assert live.version == epoch - 1, "an epoch was left out, or applied twice"
        for step in self.policy.step(
            live.policy, RowsReady(epoch=epoch, items=len(rows)), Placement()
        )[1]:
            assert isinstance(step, LogRows)
            self.rows[slot][epoch] = list(rows)
        live.before = (Counter(live.counts), live.policy)
        for item in rows:
            add(live.counts, item)
        live.version = epoch

    def _back_up(
        self, slot: SlotId, live: Live, epoch: int, rows: list[Item], number: int | None
    ) -> None:
        if live.before is None:
            return
        applied = EpochApplied(epoch=epoch, divergence=1.0, items=len(rows))
        live.policy, asked = self.policy.step(live.policy, applied, Placement())
        if number is not None:
            aligned = BarrierAligned(epoch=epoch, number=number, complete=self.coordinator.complete)
            live.policy, more = self.policy.step(live.policy, aligned, Placement())
            asked += more
        for step in asked:
            backup = Backup(epoch, Counter(live.counts), live.policy)
            if isinstance(step, BackUpState):
                self.backups[slot].append(backup)
            elif isinstance(step, TakePart):
                self.pending.append((step.number, slot, backup))

    def _commit(self, epoch: int, back: Rows) -> None:
        self.feedback[epoch] = back
        for slot, live in self.live.items():
            assert live is not None
            live.before = None
            if self.backups[slot] and self.backups[slot][-1].epoch == epoch:
                # The commit log says so: rows that a committed backup holds are dropped.
                self.rows[slot] = {e: r for e, r in self.rows[slot].items() if e > epoch}
        wait = isinstance(self.policy, Barrier) and self.policy.mode == "sync"
        for write in [w for w in self.pending if wait or self.random.random() < 1 / 2]:
            self.pending.remove(write)
            self.parts.setdefault(write[0], {})[write[1]] = write[2]
            self._coordinate(sn.PartsDurable(slots=frozenset([write[1]]), number=write[0]))

    # ---- snapshots ------------------------------------------------------------------------------

    def _begin_snapshot(self, epoch: int) -> int | None:
        if not isinstance(self.policy, Barrier):
            return None
        # In an epoch that kept slots skip, their state is not of that epoch: no snapshot there.
        if any(live is not None and live.version >= epoch for live in self.live.values()):
            return None
        return self._coordinate(sn.EpochBegins(epoch=epoch))

    def _coordinate(self, event: sn.CoordinatorEvent) -> int | None:
        assert isinstance(self.policy, Barrier)
        begun = None
        slots = frozenset(self.live)
        self.coordinator, asked = sn.coordinate(self.coordinator, event, self.policy, slots)
        for step in asked:
            if isinstance(step, sn.BeginSnapshot):
                begun = step.number
                self.snapshot_epochs[begun] = self.epoch
            elif isinstance(step, sn.RecordComplete):
                self._coordinate(sn.CompleteRecorded(number=step.number))
            elif isinstance(step, sn.DropOlder):
                self.parts = {n: p for n, p in self.parts.items() if n >= step.number}
        return begun

    # ---- recovery -------------------------------------------------------------------------------

    def _recover(self) -> None:
        durable: Any = {slot: b[-1].epoch if b else -1 for slot, b in self.backups.items()}
        if isinstance(self.policy, Barrier):
            self._coordinate(sn.SlotsLost())
            self.pending = []
            complete = self.coordinator.complete
            durable = -1 if complete is None else self.snapshot_epochs[complete]
        lost = [slot for slot, live in self.live.items() if live is None]
        if self.policy.recovery.every_change:
            durable = {s: self.epoch - 1 if not self.epoch else e for s, e in durable.items()}
        plan = self.plan(self.case.graph, self.policy.recovery, lost, self.epoch, durable=durable)
        for slot in plan.keep:
            live = self.live[slot]
            assert live is not None
            if live.before is not None:  # the epoch in hand is run again
                live.counts, live.policy = live.before
                live.version, live.before = self.epoch - 1, None
        for back in plan.restore:
            self.live[back.slot] = self._restored(back)
        self.rewinds += 1
        self.kept += len(plan.keep)
        self.epoch = plan.read_from

    def _restored(self, back: Any) -> Live:
        found = Backup(-1, Counter(), self.policy.initial())
        if self.policy.recovery.rewinds and self.coordinator.complete is not None:
            found = self.parts[self.coordinator.complete][back.slot]
        elif not self.policy.recovery.rewinds and self.backups[back.slot]:
            found = self.backups[back.slot][-1]
        assert found.epoch == back.epoch
        live = Live(Counter(found.counts), found.epoch, found.policy)
        live.policy, _ = self.policy.step(live.policy, Recovered(epoch=self.epoch), Placement())
        if back.replay:
            for epoch in range(found.epoch + 1, self.epoch):
                rows = self.rows[back.slot].get(epoch, [])
                for item in rows:
                    add(live.counts, item)
                applied = EpochApplied(epoch=epoch, divergence=0.0, items=len(rows))
                live.policy, _ = self.policy.step(live.policy, applied, Placement())
            live.version = self.epoch - 1
        return live
