"""What a test can see of one slot of a local pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.core.ids import Failures, Slot

if TYPE_CHECKING:
    from tether.core.placement import Placement
    from tether.engine.slot.resident import BoundState
    from tether.local.run import LocalRun
    from tether.operator import Operator
    from tether.state.slot import SlotState


class LocalSlot:
    """A slot that runs on the engine, in this process.

    Args:
        query: The running pipeline.
        name: Name of the operator.
        number: Which of its slots.
        placement: The slot's share of the budget.
    """

    def __init__(self, query: LocalRun, name: str, number: Slot, placement: Placement) -> None:
        self._query, self._name = query, name
        self.number, self.placement = number, placement

    @property
    def state(self) -> SlotState:
        """Its resident state."""
        return self._bound.state

    @property
    def operator(self) -> Operator:
        """The slot's own copy of the operator."""
        return self._bound.operator

    @property
    def failures(self) -> Failures:
        """k: losses that the slot has recovered from, and that cost anything."""
        newest = self._query.runner.books.ledgers[self._name].newest()
        return next((s.failures for s in newest if s.slot == self.number), Failures(0))

    @property
    def _bound(self) -> BoundState:
        found = self._query.host.found(self._name, self.number)
        if found is None:
            raise TetherError(
                f"Slot {self.number} of {self._name!r} has no state now.",
                why="It was lost, or is silent.",
                do="Run an epoch: the slot recovers before it takes rows in.",
            )
        return found
