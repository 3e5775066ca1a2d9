"""The simulation's account: the measured cost of every loss, and broken promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tether.core.accounts import PricedLoss, SlotFacts
from tether.core.bound import bound
from tether.core.ids import Epoch, Slot
from tether.simulate.scenario import operator_name

if TYPE_CHECKING:
    from tether.core.bound import Bound
    from tether.core.thresholds import Thresholds
    from tether.core.windows import Sliding
    from tether.simulate.scenario import Scenario

ROUNDING = 1 + 1e-12
"""Distances by ``l2`` are measured in floats."""


@dataclass(frozen=True, kw_only=True)
class Toll:
    """The measured cost of one loss of a slot, and what was allowed."""

    slot: int
    time: float
    """When the slot was lost, in virtual seconds."""
    position: float
    """Newest time of the stream that it may have taken in."""
    seconds: float
    """Seconds from then until it continued."""
    allowed: Thresholds
    """The price of the loss, as it is durable in the slot's account."""
    state: float
    """Distance of the recovered state from the one that was lost."""
    items: int
    """Items that were acknowledged, and neither processed nor backed up."""
    unacked: int
    """Items accepted and sent, whose receipt was not acknowledged."""


@dataclass
class TollBook:
    """Adds up losses and checks them against the budget, loss by loss."""

    scenario: Scenario
    tolls: list[Toll] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    totals: list[tuple[float, float]] = field(default_factory=list)
    """After every loss: its time, and the state error that all losses so far add up to."""
    _state: float = 0.0
    _items: int = 0
    _unacked: int = 0

    def check(self, what: str, value: float, most: float) -> None:
        """Note a violation if ``value`` is above ``most``."""
        if not value <= most * ROUNDING:
            self.violations.append(f"{what}: {value:g} is above {most:g}")

    def loss(self, toll: Toll) -> None:
        """Add a loss; check it against the slot's thresholds, and all losses against the budget."""
        self.tolls.append(toll)
        where = f"slot {toll.slot} at {toll.time:.6f} s"
        self.check(f"state lost by {where}", toll.state, toll.allowed.theta)
        self.check(f"items lost by {where}", toll.items, toll.allowed.l)
        self.check(f"unacknowledged items lost by {where}", toll.unacked, toll.allowed.gamma)
        self._state += toll.state
        self._items += toll.items
        self._unacked += toll.unacked
        self.totals.append((toll.time, self._state))
        if self.scenario.policy.window is not None:
            return  # the budget is for one window there: its answers are checked instead
        budget = self.scenario.policy.budget
        self.check(f"all state lost up to {where}", self._state, budget.max_state_error)
        self.check(f"all items lost up to {where}", self._items, budget.max_lost_items)
        self.check(
            f"all unacknowledged lost up to {where}", self._unacked, budget.max_unacked_items
        )

    def check_sliding(self, window: Sliding) -> None:
        """Check that losses within any one window are within the budget."""
        for end in {toll.position for toll in self.tolls}:
            inside = (
                toll.state
                for toll in self.tolls
                if toll.position <= end and window.remaining(toll.position, end)
            )
            what = f"state lost in the window up to {end:.6f} s"
            self.check(what, sum(inside), self.scenario.policy.budget.max_state_error)

    def bound(self) -> Bound:
        """The bound as a query would report it from these losses; see ``tether.core.bound``."""
        scenario = self.scenario
        losses: dict[int, list[PricedLoss]] = {}
        for toll in self.tolls:
            lost = PricedLoss(epoch=Epoch(0), at_most=toll.allowed.theta, items=toll.items)
            losses.setdefault(toll.slot, []).append(lost)
        facts = [
            SlotFacts(
                operator=operator_name(slot // scenario.copies),
                slot=Slot(slot),
                divergence=0.0,
                theta=math.inf,
                losses=tuple(losses.get(slot, ())),
                placement=scenario.placement(slot // scenario.copies),
            )
            for slot in range(scenario.slots)
        ]
        return bound(facts, budget=scenario.policy.budget, amplification=scenario.amplification)

    @property
    def lost(self) -> tuple[float, int, int]:
        """State, items and unacknowledged items that were lost in all."""
        return self._state, self._items, self._unacked
