"""How much of the output is still whole while slots lack epochs (PPA 2016 §III-A)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.planning.fidelity import output_fidelity
from tether.planning.reading import topology_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.core.graph import Graph, SlotId
    from tether.planning.topology import Topology


def fidelity_without(
    graph: Graph, missing: Collection[SlotId], topology: Topology | None = None
) -> float:
    """Output fidelity, from 0 to 1, if slots that lack epochs count as lost.

    Args:
        graph: The query's.
        missing: Such slots; none are named where it is not known which, so all are.
        topology: How much flows through each slot; by default those of an operator are taken to have as
            much to do as each other.

    Example:
        >>> from tether.core.graph import Graph, Node, SlotId
        >>> fidelity_without(Graph((Node("count", 4),), ()), [SlotId("count", 1)])
        0.75
    """
    lost = frozenset(missing) or frozenset(graph.slots)
    alive = [slot for slot in graph.slots if slot not in lost]
    if topology is None:
        topology = topology_of(graph, rates={node.name: 1.0 for node in graph.nodes})
    return float(output_fidelity(topology, alive))
