"""Where one primitive lives: its page of the header, its files, and the slot's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import ArenaError, BadValueError
from tether.state.header import GENERATION, LITTER, PHASE, ROWS, SERIAL, Phase

if TYPE_CHECKING:
    from tether.state.header import Header
    from tether.state.segment import Segment
    from tether.state.store import Store

_WORTH_TRIMMING = 4 << 20  # bytes


class Place:
    """All that a primitive needs of its slot.

    Args:
        store: Where the slot's segments are.
        header: The slot's header.
        number: The primitive's number within the slot.
        track: Whether durable values and the divergence are kept; a policy without backups needs
            neither.
    """

    def __init__(self, store: Store, header: Header, number: int, *, track: bool) -> None:
        self.store = store
        self.page = header.page(number)
        self.number = number
        self.track = track
        self._slot = header.slot.words
        self._prefix = f"p{number:03d}."
        self._segments: dict[str, Segment] = {}

    def segment(
        self, name: str, dtype: str, width: int = 0, *, slack: bool = True, new: bool = False
    ) -> Segment:
        """Open one of the primitive's segments; it is then refreshed with the others.

        Args:
            name: Name within the primitive.
            dtype: NumPy type of the items.
            width: Items per element; 0 for a one-dimensional segment.
            slack: Whether to allocate somewhat more than asked, for cheap growth.
            new: Whether the segment is only now needed, and so may be missing.

        Raises:
            ArenaError: There are rows, but the file of this part of them is gone.
        """
        if not new and self._rows() and not self.store.exists(self._prefix + name):
            raise ArenaError(
                f"The arena is damaged: its file {self._prefix + name} is missing.",
                why="Something other than Tether removed it.",
                do="Recreate the arena and restore the state from its backups.",
            )
        segment = self.store.segment(self._prefix + name, dtype, width, slack=slack)
        self._segments[name] = segment
        return segment

    def _rows(self) -> int:
        page = self.page
        if page.words[GENERATION] != page.saved(GENERATION):
            return int(page.words[ROWS])
        return min(page.words[ROWS], page.saved(ROWS))  # while rolling back, either may be stale

    def release(self, name: str) -> None:
        """Stop refreshing a segment that another process has replaced."""
        self._segments.pop(name, None)

    def drop(self, name: str) -> None:
        """Free one of the primitive's segments."""
        self.release(name)
        self.store.remove(self._prefix + name)

    def forget(self) -> None:
        """Stop refreshing all segments: the primitive is about to reopen them."""
        self._segments.clear()

    def refresh(self) -> None:
        """Follow other processes' growth of any segment."""
        for segment in self._segments.values():
            segment.refresh()

    def purge(self, prefix: str) -> None:
        """Remove files that start with ``prefix``: leavings of an attempt that was undone."""
        for name in self.store.names(self._prefix + prefix):
            self.store.remove(name)

    def litter(self) -> None:
        """Note that a file is being made which is of no use if we are killed now."""
        self.page.words[LITTER] = 1

    def sweep(self) -> None:
        """Remove files that no attachment would open: leavings of kills and of ``clear``."""
        if not self.page.words[LITTER]:
            return
        kept = {self._prefix + name for name in self._segments} | {self._prefix + "spec"}
        for name in self.store.names(self._prefix):
            if name not in kept:
                self.store.remove(name)
        self.page.words[LITTER] = 0

    @property
    def applying(self) -> bool:
        """Whether an epoch is being applied, so that a rollback would undo any change."""
        return bool(self._slot[PHASE] == Phase.APPLYING)

    def stamp(self) -> int:
        """The number of the running epoch's journal; raises if no epoch is being applied."""
        self.expect(Phase.APPLYING)
        return int(self._slot[SERIAL])

    def expect(self, phase: Phase) -> None:
        """Make sure that the slot is in a phase.

        Raises:
            BadValueError: It is in another.
        """
        if self._slot[PHASE] != phase:
            raise BadValueError(
                f"This needs the slot in phase {phase.name}, but it is in "
                f"{Phase(self._slot[PHASE]).name}.",
                why="State is changed only within an epoch, where a journal can undo it, and "
                "restored only before the first one.",
                do="Call begin(epoch) before changes, begin_restore() before restoring.",
            )


def trim(segment: Segment, used: int) -> None:
    """Give back most of a large segment that is now used for little."""
    if segment.allocated > _WORTH_TRIMMING and used * 4 < len(segment.data):
        segment.trim(2 * used)
