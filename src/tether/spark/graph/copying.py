"""Which slots of a query get a copy, and what a query must be like to have any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import QueryRefusedError
from tether.core.ids import Slot
from tether.engine.operators import CopyPlan
from tether.planning.plans import plan
from tether.spark.graph.shape import topology_of_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tether.planning.topology import Topology
    from tether.policies.policy import Policy
    from tether.spark.graph.flow import Flow
    from tether.spark.graph.prepared import PreparedOperator


def copy_plan(flow: Flow, policies: Iterable[Policy]) -> CopyPlan | None:
    """Which slots get a copy: those that the policy's planner chooses; None where none are asked for.

    Raises:
        BadValueError: There are too few copies for any output, or rates of unknown operators.
    """
    choice = next((one.copying for one in policies if one.copying is not None), None)
    if choice is None:
        return None
    fed = {one.name for one in flow.operators if flow.senders(one)}
    rates = {one.name: 1.0 for one in flow.operators if one.name not in fed} | dict(choice.rates)
    topology = topology_of_flow(flow, rates)
    chosen = plan(topology, choice.copies, share=choice.share, planner=choice.planner, bound=False)
    found = {one.name: tuple(map(Slot, chosen.numbers(one.name))) for one in flow.operators}

    def with_rates(measured: Mapping[str, Sequence[float]]) -> Topology:
        return topology_of_flow(flow, measured)

    return CopyPlan(
        copied={name: numbers for name, numbers in found.items() if numbers},
        standby=choice.standby,
        gain=choice.adapt,
        planner=choice.planner,
        topology=with_rates,
    )


def check_copies(operators: Iterable[PreparedOperator], *, one_executor: bool) -> None:
    """Refuse a query whose copies could reach another state, or would die together with their slots.

    Raises:
        QueryRefusedError: Says why, and what to do.
    """
    copied = [one for one in operators if one.policy.copying is not None]
    if copied and one_executor:
        raise QueryRefusedError(
            "Copies of slots need a second executor.",
            why="On a local master there is one, and with it slots and copies would die together.",
            do="Run on a cluster, or use Barrier(…), which needs no copies.",
        )
    for one in copied:
        if not one.same_again:
            raise QueryRefusedError(
                f"The operator {one.name!r} cannot have copies.",
                why="What comes before it makes other rows when it is run again, so a copy and its slot "
                "could come to different states.",
                do="Leave out rand(), current_timestamp() and UDFs that are not deterministic.",
            )
        if one.unordered:
            raise QueryRefusedError(
                f"The operator {one.name!r} cannot have copies.",
                why=f"It does not promise `repeats`, and rows with the columns {one.unordered} cannot "
                "be put into one order.",
                do="Make plain columns of them, or promise `repeats` if the order does not matter.",
            )
