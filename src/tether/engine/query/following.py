"""Adapts copies to the stream: measures the recent rates of slots, and plans copies for them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError
from tether.planning.adapting import better_plan, next_move
from tether.planning.rates import measured_rates

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.core.graph import Graph, SlotId
    from tether.core.ids import Epoch
    from tether.engine.operators import CopyPlan
    from tether.engine.ports import Statuses
    from tether.engine.query.runner import Runner
    from tether.planning.adapting import Better, Move
    from tether.planning.topology import Topology

WINDOW = 10
"""Number of epochs that rates are measured over, and after which a new plan is considered."""


class Following:
    """The rates of a lane's slots, and the copies planned for them.

    Args:
        plan: How copies are planned.
        graph: Who sends to whom.
    """

    def __init__(self, plan: CopyPlan, graph: Graph) -> None:
        self._plan, self._graph = plan, graph
        self._reports: deque[list[dict[str, Any]]] = deque(maxlen=WINDOW)
        self._looked_at = -1
        self._topology: Topology | None = None
        self.wanted: frozenset[SlotId] | None = None
        """Slots that will have a copy after the current moves; None while no copy moves."""

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
        if self.wanted is not None or not due or not copied:
            return None
        self._looked_at = epoch
        assert self._plan.gain is not None
        assert self._plan.topology is not None
        try:
            rates = measured_rates(self._graph, (one for each in self._reports for one in each))
            self._topology = self._plan.topology(rates)
            better = better_plan(self._topology, copied, self._plan.gain, self._plan.planner)
        except BadValueError:
            return None  # no rows at all: no plan is better than another
        self.wanted = None if better is None else better.copied
        return better

    def move(
        self, copied: Collection[SlotId], possible: Collection[tuple[SlotId, SlotId]]
    ) -> Move | None:
        """The next move. The moves end with the last one, or with one that is not possible."""
        assert self._topology is not None
        assert self.wanted is not None
        move = next_move(self._topology, copied, self.wanted, possible)
        last = move is None or frozenset(copied) - {move.drops} | {move.takes} == self.wanted
        self.wanted = None if last else self.wanted
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
