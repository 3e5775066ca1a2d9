"""A slot's share of the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tether.core.placement import Placement
from tether.declared import errors_of_copies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.core.amplification import Amplification
    from tether.operator import Operator
    from tether.spark.graph.flow import Flow, OperatorNode


def placement_of(
    flow: Flow,
    node: OperatorNode,
    operator: Operator,
    specs: Iterable[Mapping[str, Any]],
    amplification: Amplification,
    *,
    shared: bool,
) -> Placement:
    """Where the slots of an operator stand.

    Args:
        flow: The graph.
        node: The operator in it.
        operator: The same, bound to its input.
        specs: Descriptions of its primitives.
        amplification: How errors spread in the graph.
        shared: Whether its operators share one budget; else this one has its own.
    """
    place = Placement(
        copies=node.slots, errors_of_copies=errors_of_copies(operator, node.key, specs)
    )
    if shared:
        place = replace(place, **_of_items(flow, node))
    return amplification.placed(node.name, place, shared=shared)


def _of_items(flow: Flow, node: OperatorNode) -> dict[str, Any]:
    """What an operator's share of lost items depends on."""
    length = len(flow.operators)
    fan_out = max(one.operator.fan_out * flow.branches(one) for one in flow.operators)
    return {
        "position": length - flow.steps_to_end(node),
        "length": length,
        "fan_out": max(1.0, fan_out),
    }
