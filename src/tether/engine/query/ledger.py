"""The driver's ledgers: the last report of each slot, all losses, and the bound computed from both."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tether.backup.recorded import UNTOLD
from tether.core.accounts import Account, PricedLoss, SlotFacts
from tether.core.bound import Bound, bound_of_query
from tether.core.ids import DRIVERS, Epoch, Failures, Slot, each_slot
from tether.engine.query.commit_entries import InForce
from tether.policies.terms import counted, not_paid, terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.backup.history import CommitHistory
    from tether.core.amplification import Amplification
    from tether.core.losses import LossRecord
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.engine.messages import SlotStatus
    from tether.policies.policy import Policy


class Ledger:
    """Facts about the slots of one operator; can be read while epochs run.

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
        self.operator, self._slots = operator, slots
        self._policy, self._placement, self._window = policy, placement, window
        self._lock = threading.Lock()
        self._statuses: dict[Slot, SlotStatus] = {}
        self._losses: dict[int, dict[str, LossRecord]] = {slot: {} for slot in range(slots)}
        self._failures = dict.fromkeys(each_slot(slots), Failures(0))
        self._in_doubt: frozenset[Slot] = frozenset()
        self._terms = terms_of(policy, placement)
        self._before: dict[Slot, InForce] = {}
        """The cost of losing a slot at the end of the previous run."""
        self._untold: set[int] = set()
        """Slots whose losses are not known."""
        self._feedback: SlotFacts | None = None
        self._sources: Sequence[SlotFacts] = ()
        self.totals = {
            "rows": 0,
            "backups": 0,
            "backup_bytes": 0,
            "item_bytes": 0,
            "losses": 0,
            "rollbacks": 0,
        }

    def go_on_from(self, other: Ledger) -> None:
        """Continue the totals of the same operator with another number of slots."""
        self.totals = dict(other.totals)

    def doubt(self, slots: frozenset[Slot]) -> None:
        """Set the slots whose next loss has no known cost, because their backups have gaps."""
        with self._lock:
            self._in_doubt = slots

    def resume(self, history: CommitHistory, epoch: Epoch) -> None:
        """Load the account of losses, and what was at risk when an earlier run ended.

        Args:
            history: The commit log.
            epoch: The epoch that is run next.
        """
        self.doubt(history.in_doubt(self.operator, self._slots, epoch))
        for slot in each_slot(self._slots):
            facts = history.slot_facts(self.operator, slot, epoch)
            self._failures[slot] = facts.failures
            self._losses[slot] = {loss.lost: loss for loss in history.losses(self.operator, slot)}
            kept_up = self._policy.recovery.exact and facts.under == self._terms
            self._before[slot] = InForce(0.0 if kept_up else facts.theta, facts.under)

    def resume_without_account(self) -> None:
        """Continue after an earlier run that recorded nothing: any slot may have lost anything.

        This holds until the slot reports, because its resident state knows how often it was lost.
        """
        self._untold = set(range(self._slots))

    @property
    def lossy(self) -> bool:
        """Whether anything that the operator's slots have lost is missing from their state."""
        with self._lock:
            return bool(self._untold) or any(self._losses.values())

    def healed(self) -> None:
        """All losses so far have been repaired."""
        with self._lock:
            self._untold.clear()
            self._losses = {slot: {} for slot in range(self._slots)}
            self._failures = dict.fromkeys(each_slot(self._slots), Failures(0))
            self._before.clear()

    def note(self, statuses: Mapping[Slot, SlotStatus]) -> None:
        """Note the reports of an epoch that is committed."""
        with self._lock:
            for slot, status in statuses.items():
                self._note_loss(slot, status)
                last = self._statuses.get(slot)
                # A flush runs no epoch, so the times of the last epoch stay.
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

    def _note_loss(self, slot: Slot, status: SlotStatus) -> None:
        self._untold.discard(slot)
        if status.recovery is not None and (loss := status.recovery.loss) is not None:
            self._losses[slot][loss.lost] = loss
            self.totals["losses"] += 1
        known, last = self._losses[slot], self._statuses.get(slot)
        more = UNTOLD.lost not in known or last is None or status.losses > last.losses
        if len(known) < status.losses and more:
            # It was lost before this report at the latest, so it counts for a whole window from here on.
            known[UNTOLD.lost] = msgspec.structs.replace(UNTOLD, epoch=status.epoch)

    def note_feedback(self, losses: Sequence[LossRecord], waiting: int) -> None:
        """Note losses of the operator's feedback, and the number of items that now wait unsaved."""
        with self._lock:
            self._feedback = SlotFacts(
                operator=f"{self.operator}.feedback",
                slot=DRIVERS,
                divergence=0.0,
                theta=0.0,
                failures=Failures(len(losses)),
                losses=counted(losses, self._policy, self._placement, self._window),
                pending_items=waiting,
                placement=self._placement,
                saved=True,  # of state there is none
            )

    def note_sources(self, facts: Sequence[SlotFacts]) -> None:
        """Note the items that sources have lost on the way to the operator."""
        with self._lock:
            self._sources = facts

    def divergences(self, epoch: Epoch) -> dict[Slot, float]:
        """What each slot reported at the end of an epoch, where a loss costs at most its divergence."""
        if self._policy.recovery.exact or not self._policy.recovery.bounded:
            return {}
        with self._lock:
            return {
                slot: status.divergence
                for slot, status in self._statuses.items()
                if status.epoch == epoch
            }

    def places(self) -> list[str]:
        """The executors that the slots ran on in their last epoch, one for each slot known."""
        with self._lock:
            return [status.executor for status in self._statuses.values()]

    def bound(self) -> Bound:
        """How wrong the answer can be, from all that is known now."""
        return bound_of([self.glimpse()])

    @property
    def policy(self) -> Policy:
        """The operator's policy."""
        return self._policy

    @property
    def _by_epochs(self) -> bool:
        return self._window is not None and self._window.by == "epochs"

    def glimpse(self) -> Glimpse:
        """All that is known now, as a copy that later epochs do not change."""
        with self._lock:
            epochs = [status.epoch for status in self._statuses.values()]
            return Glimpse(
                operator=self.operator,
                policy=self._policy,
                window=self._window,
                position=float(max(epochs)) if epochs and self._by_epochs else None,
                facts=[self._facts(slot) for slot in each_slot(self._slots)]
                + ([] if self._feedback is None else [self._feedback])
                + list(self._sources),
                totals=dict(self.totals),
                slots=[_shown(self._statuses[slot]) for slot in sorted(self._statuses)],
            )

    def _facts(self, slot: Slot) -> SlotFacts:
        divergence, theta, inherited = self._at_risk(slot)
        if slot in self._in_doubt and not (self._policy.recovery.exact and not self._losses[slot]):
            divergence, theta = None, math.inf
        records = self._losses[slot].values()
        losses = counted(records, self._policy, self._placement, self._window) if records else ()
        if slot in self._untold:
            losses += (PricedLoss(epoch=Epoch(0), at_most=math.inf),)
        return SlotFacts(
            operator=self.operator,
            slot=slot,
            divergence=divergence,
            theta=theta,
            failures=self._failures[slot],
            losses=losses,
            inherited=inherited,
            placement=self._placement,
            saved=slot in self._statuses and self._statuses[slot].exact,
        )

    def _at_risk(self, slot: Slot) -> tuple[float | None, float, float]:
        """The cost of losing a slot now: its divergence, θ, and the part that no budget pays for."""
        status, before = self._statuses.get(slot), self._before.get(slot)
        if status is None and before is not None:  # as the run before left it
            theta, losses = before.theta, Failures(len(self._losses[slot]))
            changed = before.under != self._terms
            beyond = not_paid(theta, self._policy, self._placement, losses) if changed else 0.0
            return None, theta, beyond
        if self._policy.recovery.exact:
            # What is not in a backup is replayed or read again, so it is not at risk.
            return 0.0, 0.0, 0.0
        if status is None:
            return None, self._policy.threshold(self._policy.initial(), self._placement), 0.0
        return status.divergence, status.theta, 0.0

    def newest(self) -> list[SlotStatus]:
        """Newest report of each slot that has given one, in order."""
        with self._lock:
            return [self._statuses[slot] for slot in sorted(self._statuses)]

    def reports(self) -> list[dict[str, Any]]:
        """Newest report of each slot as plain values."""
        return [msgspec.to_builtins(status) for status in self.newest()]


class Glimpse(NamedTuple):
    """The content of one operator's ledger at one moment."""

    operator: str
    policy: Policy
    window: Window | None
    """How much of the stream an answer covers, if not all."""
    position: float | None
    """Position of the stream in the window's unit; None where every loss counts in full."""
    facts: list[SlotFacts]
    totals: dict[str, int]
    slots: list[dict[str, Any]]
    """The parts of each slot's newest report that progress reports show."""

    @property
    def account(self) -> Account:
        """The account of the operator's losses, from which the bound is computed."""
        return Account(
            operator=self.operator,
            budget=self.policy.budget,
            facts=tuple(self.facts),
            window=self.window,
            now=self.position,
            exact=self.policy.recovery.exact,
        )


class Spread(NamedTuple):
    """How errors of the operators of a query spread to each other."""

    amplification: Amplification
    shared: bool
    """Whether they share one budget; otherwise each has one of its own, of the same size."""


def bound_of(
    glimpses: Sequence[Glimpse], spread: Spread | None = None, only: str | None = None
) -> Bound:
    """How wrong the answer of operators can be.

    Args:
        glimpses: The books of each, upstream ones first.
        spread: How errors spread between them; not needed for a single operator.
        only: The operator whose state is asked for; by default all of them.
    """
    accounts = [one.account for one in glimpses]
    budget = accounts[0].budget if spread is None or spread.shared else None
    amplification = None if spread is None else spread.amplification
    return bound_of_query(accounts, amplification, shared=budget, only=only)


def tentative(bound: Bound, since: int | None, ahead_bytes: int = 0) -> Bound:
    """The bound of a query that answers although something is missing since an epoch.

    Args:
        bound: The bound as if nothing were missing.
        since: The epoch; None: nothing is.
        ahead_bytes: Memory that these answers take.
    """
    if since is None:
        return bound
    unlimited = {"spent": math.inf, "worst_now": math.inf, "ceiling": math.inf}
    return msgspec.structs.replace(
        bound, tentative_since=since, ahead_bytes=ahead_bytes, **unlimited
    )


def progress_of(
    glimpses: Sequence[Glimpse], spread: Spread, since: int | None = None
) -> dict[str, Any]:
    """What a progress report says beyond Spark's own.

    Args:
        glimpses: The books of each operator.
        spread: How they have to do with each other.
        since: First epoch whose rows are tentative, if any are.
    """
    names = ("promised", "spent", "at_risk", "worst_now", "left", "ceiling", "items_lost")
    now = tentative(bound_of(glimpses, spread), since)
    return {
        "bound": {name: getattr(now, name) for name in names},
        "totals": totals_of(glimpses),
        "slots": [slot for one in glimpses for slot in one.slots],
    }


def totals_of(glimpses: Sequence[Glimpse]) -> dict[str, int]:
    """Rows, backups and their bytes, losses and rollbacks of all operators together."""
    return {name: sum(one.totals[name] for one in glimpses) for name in glimpses[0].totals}


def _shown(status: SlotStatus) -> dict[str, Any]:
    names = ("operator", "slot", "epoch", "divergence", "theta", "executor", "rows_in", "rows_out")
    return {name: getattr(status, name) for name in names}
