"""A slot's share of the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.policy import Placement

if TYPE_CHECKING:
    from tether.state.slot import SlotState


def placement_of(slots: int, state: SlotState) -> Placement:
    """Where the slots of a single operator stand.

    The errors of slots add up, with one exception: under the ``max`` divergence the worst entry
    counts, and no two slots share a key, so a single ``max`` table may use the whole budget in
    every slot.
    """
    specs = list(state.specs().values())
    worst_counts = len(specs) == 1 and specs[0].get("divergence") == "max" and "keys" in specs[0]
    return Placement(copies=slots, errors_of_copies="max" if worst_counts else "add")
