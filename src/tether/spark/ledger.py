"""The driver's books: what each slot last reported, what has been lost, and the bound from both."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.bound import Bound, Loss, SlotFacts, bound, loss_at_most
from tether.spark.exactness import is_exact
from tether.spark.policy_codec import decode_policy_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.backup.history import CommitHistory
    from tether.core.policy import Placement, Policy
    from tether.core.windows import Window
    from tether.spark.control import SlotStatus


class Ledger:
    """Facts about the slots of one operator; safe to read while epochs run.

    Args:
        operator: Name of the operator.
        slots: Number of slots.
        policy: The query's policy.
        placement: Share of a slot in the budget.
        window: How much of the stream an answer covers, if not all.
    """

    def __init__(
        self,
        operator: str,
        slots: int,
        policy: Policy,
        placement: Placement,
        window: Window | None = None,
    ) -> None:
        self._operator, self._slots = operator, slots
        self._policy, self._placement, self._window = policy, placement, window
        self._lock = threading.Lock()
        self._statuses: dict[int, SlotStatus] = {}
        self._losses: dict[int, list[Loss]] = {slot: [] for slot in range(slots)}
        self._failures = dict.fromkeys(range(slots), 0)
        self.totals = {
            "rows": 0,
            "backups": 0,
            "backup_bytes": 0,
            "item_bytes": 0,
            "losses": 0,
            "rollbacks": 0,
        }

    def resume(self, history: CommitHistory, epoch: int) -> None:
        """Take over what an earlier run of the query has lost.

        Its losses were reported to a driver that is gone; each cost at most the θ of its time.
        """
        for slot in range(self._slots):
            facts = history.slot_facts(self._operator, slot, epoch)
            if is_exact(self._policy):
                self._failures[slot] = facts.failures
                continue  # under such a policy a loss costs nothing
            state = (
                decode_policy_state(facts.policy_state)
                if facts.policy_state
                else self._policy.initial()
            )
            self._failures[slot] = facts.failures
            for earlier in range(state.failures):
                then = msgspec.structs.replace(state, failures=earlier)
                at_most = self._policy.threshold(then, self._placement)
                self._losses[slot].append(Loss(epoch=epoch, at_most=at_most))
            if facts.extra:
                self._losses[slot].append(Loss(epoch=epoch, at_most=0.0, extra=facts.extra))

    def note(self, statuses: Mapping[int, SlotStatus]) -> None:
        """An epoch is committed: its reports are the newest facts."""
        with self._lock:
            for slot, status in statuses.items():
                self._note_loss(slot, status)
                last = self._statuses.get(slot)
                # A flush runs no epoch: where the last one's time went is still the news.
                seconds = status.seconds or (last.seconds if last is not None else {})
                self._statuses[slot] = msgspec.structs.replace(status, seconds=seconds)
                self._failures[slot] = status.failures
                self.totals["rows"] += status.rows_in
                self.totals["rollbacks"] += status.rolled_back
                if status.frame is not None:
                    self.totals["backups"] += 1
                    self.totals["backup_bytes"] += status.frame.ref.length
                if status.part_done is not None and status.part_done.ref is not None:
                    self.totals["backups"] += 1
                    self.totals["backup_bytes"] += status.part_done.ref.length
                if status.logged is not None:
                    self.totals["item_bytes"] += status.logged.length

    def _note_loss(self, slot: int, status: SlotStatus) -> None:
        recovery = status.recovery
        if recovery is None or recovery.exact:
            return
        before = self._statuses.get(slot)
        theta = recovery.bound - recovery.extra_bound
        known = before.divergence if before is not None else None
        self._losses[slot].append(
            Loss(
                epoch=status.epoch,
                position=float(status.epoch) if self._by_epochs else None,
                at_most=loss_at_most(theta, known),
                extra=recovery.extra_bound,
            )
        )
        self.totals["losses"] += 1

    def places(self) -> list[str]:
        """The executors that the slots ran on in their last epoch, one for each slot known."""
        with self._lock:
            return [status.executor for status in self._statuses.values()]

    def bound(self) -> Bound:
        """How wrong the answer can be, from all that is known now."""
        return bound_of([self])

    @property
    def policy(self) -> Policy:
        """The operator's policy."""
        return self._policy

    @property
    def window(self) -> Window | None:
        """How much of the stream an answer covers, if not all."""
        return self._window

    @property
    def _by_epochs(self) -> bool:
        return self._window is not None and self._window.by == "epochs"

    @property
    def position(self) -> float | None:
        """Where the stream is, in the window's unit; None where every loss is to count in full."""
        with self._lock:
            epochs = [status.epoch for status in self._statuses.values()]
        return float(max(epochs)) if epochs and self._by_epochs else None

    def facts(self) -> list[SlotFacts]:
        """What is known of each slot."""
        with self._lock:
            return [self._facts(slot) for slot in range(self._slots)]

    def _facts(self, slot: int) -> SlotFacts:
        status = self._statuses.get(slot)
        if is_exact(self._policy) and not self._losses[slot]:
            # What is not in a backup is replayed or read again: nothing of it is at risk.
            return SlotFacts(
                operator=self._operator,
                slot=slot,
                divergence=0.0,
                theta=0.0,
                failures=self._failures[slot],
                placement=self._placement,
            )
        theta = self._policy.threshold(self._policy.initial(), self._placement)
        return SlotFacts(
            operator=self._operator,
            slot=slot,
            divergence=status.divergence if status else None,
            theta=status.theta if status else theta,
            failures=self._failures[slot],
            losses=tuple(self._losses[slot]),
            placement=self._placement,
        )

    def reports(self) -> list[dict[str, Any]]:
        """Newest report of each slot as plain values."""
        with self._lock:
            statuses = [self._statuses[slot] for slot in sorted(self._statuses)]
        return [msgspec.to_builtins(status) for status in statuses]


def bound_of(ledgers: Sequence[Ledger]) -> Bound:
    """How wrong the answer of operators that share one budget can be."""
    first = ledgers[0]
    return bound(
        [fact for ledger in ledgers for fact in ledger.facts()],
        budget=first.policy.budget,
        window=first.window,
        now=first.position,
    )


def progress_of(ledgers: Sequence[Ledger], now: Bound | None) -> dict[str, Any]:
    """What a progress report says beyond Spark's own."""
    names = ("promised", "spent", "at_risk", "worst_now", "left", "ceiling")
    shown = ("operator", "slot", "epoch", "divergence", "theta", "executor")
    return {
        "bound": None if now is None else {name: getattr(now, name) for name in names},
        "totals": totals_of(ledgers),
        "slots": [
            {name: report[name] for name in shown}
            for ledger in ledgers
            for report in ledger.reports()
        ],
    }


def totals_of(ledgers: Sequence[Ledger]) -> dict[str, int]:
    """Rows, backups and their bytes, losses and rollbacks of all operators together."""
    return {name: sum(ledger.totals[name] for ledger in ledgers) for name in ledgers[0].totals}
