"""The planner that tries all unions of trees (PPA 2016 algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import BadValueError
from tether.planning.trees import members, weighted_trees

if TYPE_CHECKING:
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.topology import Topology

MOST_TREES = 5_000
MOST_PLANS = 100_000
"""Unions of trees beyond which it gives up: their number doubles with every tree."""


class DynamicProgramming:
    """Finds the best plan by growing all plans at once, tree by tree.

    For each number of copies, every plan so far takes in every tree that brings it to exactly that
    number. A plan leaves the pool when no tree is large enough for it any more. For small topologies:
    the planner "optimal" finds the same plans, and those of far larger topologies.

    Args:
        topology: The topology.
        model: Its model.

    Raises:
        BadValueError: There are too many trees.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        del topology
        self._model = model
        self._trees = weighted_trees(model, most=MOST_TREES)

    def choose(self, copies: int) -> Flags:
        """The slots of a plan with this number of copies; of equally good ones, the smallest.

        Raises:
            BadValueError: There are too many plans.
        """
        pool: set[int] = {0}
        best, best_value = 0, 0.0
        for used in range(1, copies + 1):
            grown, done = set(), set()
            for plan in pool:
                lacks = [(tree & ~plan).bit_count() for tree in self._trees]
                wanted = used - plan.bit_count()
                if max(lacks) < wanted:
                    done.add(plan)
                for tree, lack in zip(self._trees, lacks, strict=True):
                    if lack == wanted:
                        grown.add(plan | tree)
            pool -= done
            if len(pool) + len(grown) > MOST_PLANS:
                raise BadValueError(
                    f"There are more than {MOST_PLANS:,} plans of {used} copies.",
                    why="Dynamic programming looks at all of them.",
                    do='Use the planner "optimal" or "structure-aware".',
                )
            for plan in sorted(grown - pool):
                value = sum(weight for tree, weight in self._trees.items() if not tree & ~plan)
                if value > best_value * (1 + 1e-12):
                    best, best_value = plan, value
            pool |= grown
        chosen = self._model.none
        chosen[members(best)] = True
        return chosen
