"""The shape of a query as planning sees it: which operators send to which, and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.graph import Edge, Graph, Node
from tether.planning.reading import topology_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tether.planning.topology import Partitioning, Topology
    from tether.spark.graph.flow import Flow


def topology_of_flow(
    flow: Flow,
    rates: Mapping[str, float | Sequence[float]],
    *,
    correlated: Collection[str] = (),
    partitionings: Mapping[tuple[str, str], Partitioning] | None = None,
) -> Topology:
    """The topology of a query: its operators, with every edge a shuffle unless told otherwise.

    Args:
        flow: The query.
        rates: As for :func:`tether.planning.topology_of`.
        correlated: Operators that join their inputs, beside those that say so (``Operator.joins``).
        partitionings: What is known of edges: from and to which operator.
    """
    operators = flow.operators
    joining = {one.name for one in operators if one.operator.joins}
    ends = tuple(one.name for one in operators if flow.feeds_sink(one))
    return topology_of(
        graph_of_flow(flow),
        rates=rates,
        correlated=joining | set(correlated),
        partitionings=partitionings,
        outputs=ends,
    )


def graph_of_flow(flow: Flow) -> Graph:
    """The operators and the edges between them, without feedback."""
    edges = tuple(Edge(sender, one.name) for one in flow.operators for sender in flow.senders(one))
    return Graph(tuple(Node(one.name, one.slots) for one in flow.operators), edges)
