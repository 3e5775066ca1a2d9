"""Plans that follow the stream: when another plan is worth the moves, and which copy moves next.

Which slots matter depends on how much flows through each, and that changes (named as future work in PPA
2016 §V). A copy that moves has to be filled, so a new plan is taken up only if it gains enough, and
copies move one at a time: at any moment all but one are ready to speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.planning.model import model_of
from tether.planning.plans import plan

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.core.graph import SlotId
    from tether.planning.planners import PlannerName
    from tether.planning.topology import Topology


class Move(NamedTuple):
    """A copy moves: one slot loses its copy, another gets one."""

    drops: SlotId
    takes: SlotId
    fidelity: float
    """Output fidelity afterwards, if every slot without a copy is lost."""


class Better(NamedTuple):
    """A plan that is worth the moves."""

    copied: frozenset[SlotId]
    before: float
    """Fidelity of the copies as they are, with the rates of now."""
    after: float
    """Fidelity of the new plan."""


def better_plan(
    topology: Topology, copied: Collection[SlotId], gain: float, planner: PlannerName
) -> Better | None:
    """A plan with as many copies that gains more than ``gain``; None if the copies may stay.

    Args:
        topology: The topology, with the rates of now.
        copied: Slots that have a copy.
        gain: The fidelity, from 0 to 1, that it must gain.
        planner: Who plans.

    Example:
        >>> from tether.core.graph import SlotId
        >>> from tether.planning import Node, Topology
        >>> topology = Topology((Node("count", 3, rates=(1.0, 1.0, 8.0)),), ())
        >>> better_plan(topology, [SlotId("count", 0)], 0.05, "structure-aware")
        Better(copied=frozenset({SlotId(operator='count', slot=2)}), before=0.1, after=0.8)
        >>> better_plan(topology, [SlotId("count", 2)], 0.05, "structure-aware") is None
        True
    """
    model = model_of(topology)
    before = model.value(model.mask(copied))
    chosen = plan(topology, len(copied), planner=planner, bound=False)
    if chosen.fidelity - before <= gain:
        return None
    # A plan may leave copies unused where they add nothing; they stay where they are then.
    kept = [slot for slot in sorted(copied) if slot not in chosen.copied]
    unused = len(copied) - len(chosen.copied)
    return Better(frozenset(chosen.copied) | set(kept[:unused]), before, chosen.fidelity)


def next_move(
    topology: Topology,
    copied: Collection[SlotId],
    wanted: Collection[SlotId],
    possible: Collection[tuple[SlotId, SlotId]] | None = None,
) -> Move | None:
    """The move towards the wanted copies after which fidelity is highest; None if there is none.

    Args:
        topology: The topology, with the rates of now.
        copied: Slots that have a copy.
        wanted: Slots that are to have one.
        possible: Pairs of a slot that may lose its copy and one that may get it; any by default.

    Example:
        >>> from tether.core.graph import SlotId
        >>> from tether.planning import Node, Topology
        >>> topology = Topology((Node("count", 3, rates=(1.0, 1.0, 8.0)),), ())
        >>> move = next_move(topology, [SlotId("count", 0)], [SlotId("count", 2)])
        >>> move.takes, move.fidelity
        (SlotId(operator='count', slot=2), 0.8)
    """
    model, have = model_of(topology), frozenset(copied)
    best: Move | None = None
    for drops in sorted(have - set(wanted)):
        for takes in sorted(frozenset(wanted) - have):
            if possible is not None and (drops, takes) not in possible:
                continue
            fidelity = model.value(model.mask(have - {drops} | {takes}))
            if best is None or fidelity > best.fidelity:
                best = Move(drops, takes, fidelity)
    return best
