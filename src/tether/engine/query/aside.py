"""How a run differs from an ordinary one: a twin, or the query while slots are missing from it.

Neither makes anything durable. A restart knows of them only through the note of the take-over
(:mod:`tether.protocols.take_over`), and starts from the newest complete snapshot as usual.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        self._after: Epoch | None = None
        self._followed = False
        self._missing: frozenset[SlotId] = frozenset()
        self._how: Missing = "stale"

    @property
    def after(self) -> Epoch | None:
        """The epoch before the first one, while several epochs are run as one."""
        return self._after

    @contextmanager
    def as_one(self, after: Epoch) -> Iterator[None]:
        """Run all epochs after this one as a single one."""
        self._after = after
        try:
            yield
        finally:
            self._after = None

    @property
    def followed(self) -> bool:
        """Whether a twin is about to replace the slots: moving them now would only delay both runs."""
        return self._followed

    def follow(self, followed: bool) -> None:
        """A twin has started, or there is none any more."""
        self._followed = followed

    def use_arena(self, name: str) -> None:
        """The run's resident state has this name from now on."""
        self.arena = name

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
