"""How much of the output is still whole while slots lack epochs (PPA 2016 §III-A)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.planning import output_fidelity, topology_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.core.graph import Graph, SlotId


def fidelity_without(graph: Graph, missing: Collection[SlotId]) -> float:
    """Output fidelity, from 0 to 1, if slots that lack epochs count as lost.

    Slots of an operator are taken to have as much to do as each other: what they really do is not
    known before the epoch has run.

    Args:
        graph: The query's.
        missing: Such slots; none are named where it is not known which, so all are.

    Example:
        >>> from tether.core.graph import Graph, Node, SlotId
        >>> fidelity_without(Graph((Node("count", 4),), ()), [SlotId("count", 1)])
        0.75
    """
    lost = frozenset(missing) or frozenset(graph.slots)
    alive = [slot for slot in graph.slots if slot not in lost]
    rates = {node.name: 1.0 for node in graph.nodes}
    return float(output_fidelity(topology_of(graph, rates=rates), alive))
