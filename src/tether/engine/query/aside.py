"""How a run differs from an ordinary one: a twin, or the query while slots are missing from it.

Neither makes anything durable. A restart knows of them only through the note of the take-over
(:mod:`tether.protocols.take_over`), and starts from the newest complete snapshot as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.core.graph import SlotId

Missing = Literal["skip", "stale"]
"""What a slot that lost its state does until it is recovered: give no output (PPA 2016, DPC 2005), or
continue at once from its part of the newest snapshot, although later epochs are missing from it."""


class Aside:
    """How a run differs from an ordinary one.

    Args:
        arena: Names the run's resident state; by default it is the query's.
        records: Whether what it does becomes durable.
        start: Of a twin: the epoch of the exact state that it starts from.
    """

    def __init__(
        self, arena: str = "", *, records: bool = True, start: Epoch | None = None
    ) -> None:
        self.arena, self.records = arena, records
        self.start = start
        """The only state that slots may restore, while the run is a twin: that of this epoch's end."""
        self.after: Epoch | None = None
        """The epoch before the first one, while several epochs are run as one."""
        self.followed = False
        """Whether a twin is about to replace the slots: moving them now would only delay both runs."""
        self._missing: frozenset[SlotId] = frozenset()
        self._how: Missing = "stale"

    @property
    def missing(self) -> frozenset[SlotId]:
        """Slots whose state lacks epochs, or is missing."""
        return self._missing

    def become_main(self) -> None:
        """The run is the query from now on."""
        self.records, self.start = True, None

    def go_on_without(self, slots: Iterable[SlotId], how: Missing) -> None:
        """Continue although these slots, and those given earlier, lack epochs; make nothing durable."""
        self.records = False
        self._missing, self._how = self._missing | frozenset(slots), how

    def stale(self, operator: str) -> frozenset[Slot]:
        """Slots of an operator that may continue from an old snapshot."""
        return self._of(operator) if self._how == "stale" else frozenset()

    def skipped(self, operator: str) -> frozenset[Slot]:
        """Slots of an operator that give nothing."""
        return self._of(operator) if self._how == "skip" else frozenset()

    def _of(self, operator: str) -> frozenset[Slot]:
        return frozenset(slot.slot for slot in self._missing if slot.operator == operator)
