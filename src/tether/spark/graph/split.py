"""Cutting a query with a feedback loop in two, so that its ends may run at different paces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.core.errors import QueryRefusedError
from tether.spark.graph.flow import Node, OperatorNode, SourceNode

if TYPE_CHECKING:
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.sinks import Sink


class Cut(NamedTuple):
    """The lanes of a query, the one ahead first, and the nodes whose rows go from it to the other."""

    nodes: list[list[Node]]
    sinks: list[list[tuple[Node, Sink]]]
    boundary: list[Node]


def split(query: PreparedQuery) -> Cut:
    """One lane under BSP; else the operators that get feedback, with all before them, go ahead.

    Raises:
        QueryRefusedError: The query has no feedback loop, or loops that cannot be cut at one place.
    """
    flow = query.flow
    if not query.consistency.splits:
        return Cut([list(flow.order)], [list(query.sinks)], [])
    senders = [node for node in flow.operators if node.feedback_to is not None]
    ahead = flow.upstream([node.feedback_to for node in senders if node.feedback_to is not None])
    if not senders or any(sender in ahead for sender in senders):
        raise QueryRefusedError(
            f"The query cannot run under {query.consistency.name}.",
            why="It has no feedback loop." if not senders else "Its feedback loops are nested.",
            do="Leave consistency out: every epoch then runs through all operators in order.",
        )
    behind = [node for node in flow.order if node not in ahead]
    crossing = {parent for node in behind for parent in node.parents if parent in ahead}
    if any(isinstance(node, SourceNode) for node in crossing):
        raise QueryRefusedError(
            f"The query cannot run under {query.consistency.name}.",
            why="An operator behind the feedback loop reads a source directly.",
            do="Let its rows pass through the operator that gets the feedback.",
        )
    first = [node for node in flow.order if node in ahead]
    return Cut(
        [first, behind],
        [
            [(node, sink) for node, sink in query.sinks if node in ahead],
            [(node, sink) for node, sink in query.sinks if node not in ahead],
        ],
        [node for node in first if node in crossing],
    )


def operators_of(cut: Cut) -> list[list[OperatorNode]]:
    """The operators of each lane."""
    return [[n for n in nodes if isinstance(n, OperatorNode)] for nodes in cut.nodes]
