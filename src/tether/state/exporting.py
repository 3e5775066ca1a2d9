"""Exports of a slot's state for backups: part of it or all, at once or while it changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError
from tether.state.header import Phase
from tether.state.settling import PendingExport
from tether.state.sharing import export_shared

if TYPE_CHECKING:
    from tether.state.header import Header
    from tether.state.primitive import Export, Primitive


class Exporting(ABC):
    """The exports of a :class:`tether.state.slot.SlotState`."""

    _primitives: dict[str, Primitive]
    _header: Header

    @abstractmethod
    def _expect(self, *phases: Phase) -> None:
        """Refuse an export that is not possible now."""

    def export(self, target: float, rounding: float = 0.0) -> dict[str, Export]:
        """Take out just enough of all primitives to bring the divergence to ``target``.

        Args:
            target: Most divergence that may be left.
            rounding: Most that rounding of floats may add to that; divided evenly among primitives.

        Returns:
            By name, the exports that hold something.

        Raises:
            BadValueError: Another export is being written; nothing is changed.
        """
        self._expect_nothing_pending()
        each = self._each(rounding)
        return export_shared(
            self._primitives.values(), target, lambda one, share: one.export(share, each)
        )

    def export_full(self, rounding: float = 0.0) -> dict[str, Export]:
        """Take out the whole state of all primitives.

        Args:
            rounding: Most divergence that rounding of floats may leave.

        Raises:
            BadValueError: Another export is being written; nothing is changed.
        """
        self._expect_nothing_pending()
        each = self._each(rounding)
        return {name: one.export_full(each) for name, one in self._primitives.items()}

    def _each(self, rounding: float) -> float:
        """The part of every primitive, such that all parts together do not exceed the whole."""
        return rounding / max(len(self._primitives), 1) * (1 - 2.0**-50)

    def _expect_nothing_pending(self) -> None:
        # Checked here and not in each primitive: otherwise the first ones would already count as
        # durable.
        if self.pending is not None:
            raise BadValueError(
                "The state cannot be exported now.",
                why="An earlier export is still being written, and would become durable after this one.",
                do="Settle or abandon that one first.",
            )

    def begin_export(self, target: float) -> PendingExport | None:
        """Take out what ``export`` would, to be written while the state continues to change.

        It counts as durable only when it is settled, in this or a later epoch, by the process that
        then works on the state (see ``pending``). Until then ``divergence`` is to the backups
        without it, and no other export can be made.

        Returns:
            What to write; None if the divergence is at the target already.

        Raises:
            BadValueError: Another export is being written, or the target is negative.
        """
        self._expect(Phase.APPLYING)
        return PendingExport.begin(self._header.slot.words, self._primitives, target)

    @property
    def pending(self) -> PendingExport | None:
        """The export that is being written; with its entries only in the process that began it."""
        return PendingExport.found(self._header.slot.words, self._primitives)
