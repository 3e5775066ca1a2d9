"""What every simulated history must keep, whatever happens in it; shared by all theorems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.simulate import Fault, Scenario, World
from tether.simulate.item_recovery import readable_failures
from tether.simulate.item_slot import ItemSlot

if TYPE_CHECKING:
    from collections.abc import Iterable


def check(
    scenario: Scenario, faults: Iterable[Fault], slot_type: type[ItemSlot] = ItemSlot
) -> World:
    """Run to the end: Θ + Lα, Γ + Lβ, θ and l and γ of every loss, and every failure counted."""
    world = World(scenario, faults, slot_type)
    world.run()
    assert world.book.violations == []
    assert world.book.bound().spent >= world.book.lost[0]
    if scenario.policy.window is None:
        for slot in world.slots:
            losses = sum(toll.slot == slot.number for toll in world.book.tolls)
            assert readable_failures(world.log(slot)) >= losses
            assert slot.policy_state.failures >= losses
    return world
