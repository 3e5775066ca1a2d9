"""One slot of an operator in this process, under a real policy, with backups kept in memory."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from tether.core import accounts
from tether.core.ids import Epoch, Failures, Slot
from tether.engine.slot.hooks import EpochInput, call_hooks
from tether.operator import Loss
from tether.policies.events import EpochApplied, Recovered, WindowEnd
from tether.policies.instructions import BackUpState
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tether.core.placement import Placement
    from tether.operator import EndedWindow, Operator
    from tether.output import Output
    from tether.policies.policy import Policy


class LocalSlot:
    """Resident state, policy state and durable parts of one slot.

    Args:
        number: Which slot.
        operator: The operator as it was bound; every slot works on a copy of its own.
        policy: When to back up.
        placement: The slot's share of the budget.
    """

    def __init__(
        self, number: int, operator: Operator, policy: Policy, placement: Placement
    ) -> None:
        self.number, self._policy, self.placement = number, policy, placement
        self._bound_operator = operator
        self._policy_state = policy.initial()
        self._parts: dict[str, list[Sequence[pa.RecordBatch]]] = {}
        self._exact = True
        self._backup_epoch = -1
        self._loss: Loss | None = None
        self._losses: list[accounts.Loss] = []
        self.failures = 0
        self.backups = 0
        self.backup_bytes = 0
        self._fresh()

    def _fresh(self) -> None:
        self.operator = copy.copy(self._bound_operator)
        self.state = SlotState.heap(track=self._policy.keeps_backups)
        self.operator.setup(self.state)

    @property
    def theta(self) -> float:
        """The largest divergence that the slot may carry into a committed epoch now."""
        return self._policy.threshold(self._policy_state, self.placement)

    def lose(self, epoch: Epoch) -> None:
        """Drop the resident state and load what is durable, as a new process would.

        Args:
            epoch: The epoch that the slot will run next.
        """
        at_most = math.inf
        if self._policy.keeps_backups:
            # As a driver that outlives the slot knows it: what the slot last reported.
            at_most = accounts.loss_at_most(self.theta, self.state.divergence(exact=True))
        self._fresh()
        self.state.begin_restore()
        for name, parts in self._parts.items():
            for batches in parts:
                self.state.restore({name: batches})
        self.state.finish_restore(epoch - 1)
        if self._exact:
            return  # the backup was the state itself: nothing is missing
        self._policy_state, _ = self._policy.step(
            self._policy_state, Recovered(epoch=epoch), self.placement
        )
        self.failures += 1
        self._losses.append(accounts.Loss(epoch=epoch, at_most=at_most, position=float(epoch)))
        told = at_most if self._loss is None else at_most + self._loss.bound
        self._loss = Loss(
            slot=self.number,
            epoch=epoch,
            backup_epoch=self._backup_epoch,
            failures=self.failures,
            bound=told,
            theta=self.theta,
        )

    def facts(self, operator: str) -> accounts.SlotFacts:
        """What a query's driver would know of the slot."""
        tracked = self._policy.keeps_backups
        return accounts.SlotFacts(
            operator=operator,
            slot=Slot(self.number),
            divergence=self.state.divergence() if tracked else None,
            theta=self.theta,
            failures=Failures(self.failures),
            losses=tuple(self._losses),
            placement=self.placement,
        )

    def run(
        self,
        epoch: Epoch,
        batches: Sequence[pa.RecordBatch],
        fed_back: Sequence[pa.RecordBatch],
        out: Output,
        window: EndedWindow | None,
    ) -> list[pa.RecordBatch]:
        """Apply one epoch: the operator's hooks, then the policy's instructions; give what it emits."""
        self.state.begin(epoch)
        try:
            if self._loss is not None:
                self.operator.on_recover(self._loss)
            ended = [] if window is None else [window]
            given = EpochInput(batches, fed_back, lambda _: ended)
            emitted = list(call_hooks(self.operator, given, out))
        except BaseException:
            self.state.rollback()
            raise
        self._commit(epoch, sum(batch.num_rows for batch in batches))
        if window is not None:
            event = WindowEnd(epoch=epoch, end=window.end)
            self._policy_state, _ = self._policy.step(self._policy_state, event, self.placement)
        return emitted

    def _commit(self, epoch: Epoch, rows: int) -> None:
        divergence = self.state.divergence()
        if divergence > self.theta:
            divergence = self.state.divergence(exact=True)
        self._policy_state, instructions = self._policy.step(
            self._policy_state,
            EpochApplied(epoch=epoch, divergence=divergence, items=rows),
            self.placement,
        )
        for instruction in instructions:
            if isinstance(instruction, BackUpState):
                self._back_up(epoch, instruction.target)
        self.state.commit(epoch)
        self._loss = None
        tracked = self._policy.keeps_backups
        self._exact = tracked and self.state.dirty_entries() == 0
        if tracked and self.state.divergence(exact=True) > self.theta:
            raise AssertionError(f"slot {self.number} would break its bound in epoch {epoch}")

    def _back_up(self, epoch: Epoch, target: float) -> None:
        for name, export in self.state.export(target).items():
            kept = self._parts.setdefault(name, [])
            if export.full:
                kept.clear()
            kept.append(export.batches)
            self.backup_bytes += export.nbytes
        self.backups += 1
        self._backup_epoch = epoch
