"""What every simulated history must keep, whatever happens in it; shared by all theorems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.simulate import Fault, Scenario, World
from tether.simulate.recovery import readable_failures
from tether.simulate.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable


def check(scenario: Scenario, faults: Iterable[Fault], slot_type: type[Slot] = Slot) -> World:
    """Run to the end: Θ + Lα, Γ + Lβ, θ and l and γ of every loss, and every failure counted."""
    world = World(scenario, faults, slot_type)
    world.run()
    assert world.ledger.violations == []
    assert world.ledger.bound().spent >= world.ledger.lost[0]
    if scenario.policy.window is None:
        for slot in world.slots:
            losses = sum(toll.slot == slot.number for toll in world.ledger.tolls)
            assert readable_failures(world.log(slot)) >= losses
            assert slot.policy_state.failures >= losses
    return world
