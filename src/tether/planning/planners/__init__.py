"""The planners, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from tether.planning.planners.best import Optimal
from tether.planning.planners.dynamic import DynamicProgramming
from tether.planning.planners.greedy import Greedy
from tether.planning.planners.structure_aware import Full, StructureAware, Structured

if TYPE_CHECKING:
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.topology import Topology

PlannerName = Literal[
    "structure-aware", "structured", "full", "greedy", "dynamic-programming", "optimal"
]


class Planner(Protocol):
    """Made once for a topology, asked for plans of any number of copies."""

    def __init__(self, topology: Topology, model: Model) -> None: ...

    def choose(self, copies: int) -> Flags:
        """The slots of a plan with at most this number of copies."""
        ...


PLANNERS: dict[PlannerName, type[Planner]] = {
    "structure-aware": StructureAware,
    "structured": Structured,
    "full": Full,
    "greedy": Greedy,
    "dynamic-programming": DynamicProgramming,
    "optimal": Optimal,
}

__all__ = ["PLANNERS", "Planner", "PlannerName"]
