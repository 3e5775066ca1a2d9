"""Adapts copies to the stream: measures the recent rates of slots, and plans copies for them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tether.core.errors import BadValueError
from tether.planning.adapting import better_plan, next_move
from tether.planning.rates import measured_rates

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.core.graph import Graph, SlotId
    from tether.core.ids import Epoch
    from tether.engine.operators import TopologyOf
    from tether.engine.ports import Statuses
    from tether.engine.query.runner import Runner
    from tether.planning.adapting import Better, Move
    from tether.planning.planners import PlannerName
    from tether.planning.topology import Topology

WINDOW = 10
"""Number of epochs that rates are measured over, and after which a new plan is considered."""


class _Moves(NamedTuple):
    """Moves that have begun."""

    topology: Topology
    """With the rates that the plan is for."""
    wanted: frozenset[SlotId]


class Following:
    """The rates of a lane's slots, and the copies planned for them.

    Args:
        graph: Which slots send to which.
        topology: Makes a topology of measured rates.
        gain: Copies move when another plan has at least this much more fidelity.
        planner: Chooses the plans.
    """

    def __init__(
        self, graph: Graph, topology: TopologyOf, gain: float, planner: PlannerName
    ) -> None:
        self._graph, self._topology, self._gain, self._planner = graph, topology, gain, planner
        self._reports: deque[list[dict[str, Any]]] = deque(maxlen=WINDOW)
        self._looked_at = -1
        self._moves: _Moves | None = None

    @property
    def wanted(self) -> frozenset[SlotId] | None:
        """Slots that will have a copy after the current moves; None while no copy moves."""
        return None if self._moves is None else self._moves.wanted

    def note(self, voices: Statuses) -> None:
        """Slots have reported an epoch."""
        self._reports.append(
            [
                {"operator": name, "slot": slot, "rows_in": s.rows_in, "rows_out": s.rows_out}
                for (name, slot), s in voices.items()
            ]
        )

    def look(self, epoch: Epoch, copied: Collection[SlotId]) -> Better | None:
        """Whether other copies would be better now; evaluated every few epochs."""
        due = epoch >= self._looked_at + WINDOW and len(self._reports) == WINDOW
        if self._moves is not None or not due or not copied:
            return None
        self._looked_at = epoch
        try:
            rates = measured_rates(self._graph, (one for each in self._reports for one in each))
            topology = self._topology(rates)
            better = better_plan(topology, copied, self._gain, self._planner)
        except BadValueError:
            return None  # no rows at all: no plan is better than another
        self._moves = None if better is None else _Moves(topology, better.copied)
        return better

    def move(
        self, copied: Collection[SlotId], possible: Collection[tuple[SlotId, SlotId]]
    ) -> Move | None:
        """The next move. The moves end with the last one, or with one that is not possible."""
        if self._moves is None:
            return None
        topology, wanted = self._moves
        move = next_move(topology, copied, wanted, possible)
        if move is None or frozenset(copied) - {move.drops} | {move.takes} == wanted:
            self._moves = None
        return move


def topology_now(runner: Runner[Any]) -> Topology | None:
    """What copies of a lane are planned for, with its newest rates; None without copies."""
    plan = runner.plan.settings.copies
    if plan is None or plan.topology is None:
        return None
    reports = [
        {"operator": s.operator, "slot": s.slot, "rows_in": s.rows_in, "rows_out": s.rows_out}
        for ledger in runner.books.ledgers.values()
        for s in ledger.newest()
    ]
    try:
        return plan.topology(measured_rates(runner.plan.settings.graph, reports))
    except BadValueError:  # no rows yet
        return None
