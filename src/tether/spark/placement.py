"""A slot's share of the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tether.core.policy import Placement

if TYPE_CHECKING:
    from tether.spark.flow import Flow, OperatorNode
    from tether.state.slot import SlotState


def placement_of(node: OperatorNode, state: SlotState, flow: Flow | None) -> Placement:
    """Where the slots of an operator stand.

    The errors of slots add up, with one exception: under the ``max`` divergence the worst entry
    counts, and no two slots share a key, so a single ``max`` table may use the whole budget in
    every slot.

    Args:
        node: The operator.
        state: As its ``setup`` declares it.
        flow: The graph whose operators share one budget; None where the operator has its own.
    """
    specs = list(state.specs().values())
    worst_counts = len(specs) == 1 and specs[0].get("divergence") == "max" and "keys" in specs[0]
    errors: Literal["add", "max"] = "max" if worst_counts and node.key else "add"
    if flow is None or len(flow.operators) == 1:
        return Placement(copies=node.slots, errors_of_copies=errors)
    length = len(flow.operators)
    fan_out = max(one.operator.fan_out * flow.branches(one) for one in flow.operators)
    return Placement(
        copies=node.slots,
        position=length - flow.steps_to_end(node),
        length=length,
        fan_out=max(1.0, fan_out),
        errors_of_copies=errors,
    )
