"""How good the output is while slots are lost (PPA 2016 §III-A).

Output fidelity is about the part of the source's input that still contributes to the answer. It asks
little of an operator: how much flows, and whether it joins its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.planning.model import model_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.core.graph import SlotId
    from tether.planning.topology import Topology


def output_fidelity(topology: Topology, alive: Iterable[tuple[str, int]]) -> float:
    """Output fidelity, from 0 to 1, while only these slots live (PPA 2016 eq. 4).

    Args:
        topology: The topology.
        alive: The living slots: an operator's name and a number each.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology((Node("a", 4, rates=1.0), Node("b")), (Link("a", "b"),))
        >>> output_fidelity(topology, [("a", 0), ("a", 1), ("b", 0)])
        0.5
    """
    model = model_of(topology)
    return model.value(model.mask(alive))


def internal_completeness(topology: Topology, alive: Iterable[tuple[str, int]]) -> float:
    """Rows that the living slots process, to those that all slots process without a failure.

    The metric that output fidelity is compared with in PPA 2016 §VI-B: it knows nothing of joins.

    Args:
        topology: The topology.
        alive: The living slots.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology((Node("a", 4, rates=1.0), Node("b")), (Link("a", "b"),))
        >>> internal_completeness(topology, [("a", 0), ("a", 1)])  # 2 of 8: b's 4 are lost too
        0.25
    """
    model = model_of(topology, "completeness")
    return model.value(model.mask(alive))


def information_loss(topology: Topology, alive: Iterable[tuple[str, int]]) -> dict[SlotId, float]:
    """The loss of every slot's output, from 0 to 1 (PPA 2016 eq. 1 to 3).

    Args:
        topology: The topology.
        alive: The living slots.
    """
    model = model_of(topology)
    survival = model.survival(model.mask(alive)[:, None])[:, 0]
    return {slot: 1.0 - float(s) for slot, s in zip(model.slots, survival, strict=True)}
