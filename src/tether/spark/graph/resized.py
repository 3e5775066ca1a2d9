"""The same query with other numbers of slots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tether.spark.graph.flow import Flow, OperatorNode, SourceNode
from tether.spark.graph.prepared import placed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.spark.graph.flow import Node
    from tether.spark.graph.prepared import PreparedQuery


def resized(query: PreparedQuery, slots: Mapping[str, int]) -> PreparedQuery:
    """A query whose operators have other numbers of slots than the program says.

    What depends on them is worked out again: shares of the budget, and how errors spread. Sources are
    the same objects, and so is whatever has no such operator before it.

    Args:
        query: The query; it stays as it is.
        slots: The new numbers, by name of the operator.
    """
    if not slots:
        return query
    made: dict[Node, Node] = {}
    for node in query.flow.order:
        made[node] = _resized(node, made, slots)
    prepared = {}
    for node, one in query.operators.items():
        now = made[node]
        assert isinstance(now, OperatorNode)
        prepared[now] = replace(
            one,
            node=now,
            slots=now.slots,
            declared_slots=0 if now.slots == one.in_program else one.in_program,
        )
    flow = Flow(tuple(made[node] for node, _ in query.sinks))
    amplification, operators = placed(flow, prepared, shared=query.shares_budget)
    return replace(
        query,
        flow=flow,
        operators=operators,
        amplification=amplification,
        sinks=tuple((made[node], sink) for node, sink in query.sinks),
    )


def _resized(node: Node, made: Mapping[Node, Node], slots: Mapping[str, int]) -> Node:
    if isinstance(node, SourceNode):
        return node
    changed: dict[str, object] = {}
    parents = tuple(made[parent] for parent in node.parents)
    if parents != node.parents:
        changed["parents"] = parents
    if isinstance(node, OperatorNode):
        if node.feedback_to is not None and made[node.feedback_to] is not node.feedback_to:
            changed["feedback_to"] = made[node.feedback_to]
        if slots.get(node.name, node.slots) != node.slots:
            changed["slots"] = slots[node.name]
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]
