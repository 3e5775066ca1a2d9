"""What all built-in state primitives have in common: epochs, divergence, backup and restore."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tether.core.errors import BadValueError
from tether.state.header import CLEARED, CLEARED_KEYS, GENERATION, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from tether.state.cells import Cells
    from tether.state.place import Place
    from tether.state.segment import Array

FULL = {b"tether.part": b"full"}
PARTIAL = {b"tether.part": b"partial"}
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Export:
    """What a backup must write, copied out of the state."""

    batches: list[pa.RecordBatch]
    """The entries. Their schema's metadata says whether they are the whole state."""
    entries: int
    """Number of entries (rows) in the batches."""
    carried: float
    """By how much the divergence falls when they are durable."""
    divergence_after: float
    """The divergence that is left."""
    full: bool
    """Whether the batches replace all earlier ones."""

    @property
    def nbytes(self) -> int:
        """Bytes of the batches in memory, about what they take when written."""
        return sum(batch.nbytes for batch in self.batches)


class Primitive(ABC):
    """One named piece of a slot's state.

    Args:
        place: Where it lives.
        spec: Its description as stored in the arena: plain values only.
    """

    kind: ClassVar[str]

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        self.place = place
        self.spec = dict(spec)
        self.name: str = spec["name"]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Kind, types and divergence as plain values: part of the program's fingerprint."""

    @abstractmethod
    def divergence(self, *, exact: bool = False) -> float:
        """Distance between the live state and the backups, never too small; 0 if not tracked."""

    @abstractmethod
    def dirty_entries(self) -> int:
        """Entries that may differ from the backups: what an exact export would look at."""

    @abstractmethod
    def export(self, target: float) -> Export:
        """Take out the fewest worst entries so that the divergence left is at most ``target``."""

    @abstractmethod
    def export_full(self) -> Export:
        """Take out the whole state."""

    @abstractmethod
    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply one exported part: its entries become both live and durable."""

    @abstractmethod
    def create(self) -> None:
        """Set up an empty primitive on a blank page, once."""

    @abstractmethod
    def begin(self) -> None:
        """Forget the journal of the epoch before."""

    @abstractmethod
    def undo(self) -> None:
        """Put everything but the header's words back to the beginning of the epoch."""

    @abstractmethod
    def unstamp(self) -> None:
        """Forget which epoch journaled which entry."""

    @abstractmethod
    def refresh(self) -> None:
        """Follow what other processes did since this attachment was last used."""


class CellPrimitive(Primitive):
    """A primitive whose entries are rows of ``Cells``."""

    _cells: Cells

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        super().__init__(place, spec)
        self._open()

    @abstractmethod
    def _open_parts(self) -> None:
        """Open the segments of the current generation."""

    @abstractmethod
    def _batches(self, rows: Array) -> Iterator[pa.RecordBatch]:
        """Entries of some rows."""

    @abstractmethod
    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        """All entries; at least one batch, even if it is empty."""

    @abstractmethod
    def _smaller_whole(self, entries: int) -> bool:
        """Whether the whole state takes no more bytes than that many single entries."""

    def _open(self) -> None:
        self.place.forget()
        self._generation = self.place.page.words[GENERATION]
        self._open_parts()

    def __len__(self) -> int:
        return len(self._cells)

    def changed(self) -> Array:
        """Row numbers of entries changed or added in this epoch, each once."""
        return self._cells.changed()

    def divergence(self, *, exact: bool = False) -> float:
        """Distance between the live state and the backups, never too small; 0 if not tracked.

        Args:
            exact: For ``max``: look at all dirty entries, instead of giving an upper bound.
        """
        return self._cells.divergence(exact=exact)

    def dirty_entries(self) -> int:
        """Entries that may differ from the backups, those that the backups should not have too."""
        if not self.place.track:
            return 0
        return len(self._cells.dirty) + int(self.place.page.words[CLEARED_KEYS])

    def export(self, target: float) -> Export:
        """Take out the fewest worst entries so that the divergence left is at most ``target``.

        They count as durable from here on; if writing them fails, roll the epoch back. A target
        of 0 takes out every difference, also those that the divergence does not measure, so that
        restoring gives exactly this state.

        Raises:
            BadValueError: The target is negative, or backups are not tracked.
        """
        self.place.stamp()
        if not self.place.track or math.isnan(target) or target < 0:
            raise BadValueError(
                f"The state {self.name!r} cannot be exported to a divergence of {target}.",
                why="A target is at least 0, and the state must be tracked for partial backups.",
                do="Give another target, or use export_full.",
            )
        before = self.divergence(exact=True)
        if before <= target and (target > 0 or not self.dirty_entries()):
            return Export([], 0, 0.0, before, full=False)
        rows, remaining = self._cells.choose(target)
        if self.place.page.words[CLEARED_KEYS] or self._smaller_whole(len(rows)):
            return self.export_full()
        batches = [_tagged(batch, PARTIAL) for batch in self._batches(rows)]
        self._cells.mark_durable(rows, remaining)
        after = self.divergence(exact=True)
        return Export(batches, len(rows), before - after, after, full=False)

    def export_full(self) -> Export:
        """Take out the whole state; all of it counts as durable from here on."""
        self.place.stamp()
        before = self.divergence(exact=True)
        batches = [_tagged(batch, FULL) for batch in self._all_batches()]
        if self.place.track:
            rows, remaining = self._cells.choose(0.0)
            self._cells.mark_durable(rows, remaining)
            self.place.page.floats[CLEARED] = 0.0
            self.place.page.words[CLEARED_KEYS] = 0
        return Export(batches, len(self), before, 0.0, full=True)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply one exported part: its entries become both live and durable.

        Parts are applied in the order in which they were exported; later ones win, and a full
        one replaces everything before it.
        """
        self.place.expect(Phase.RESTORING)
        for number, batch in enumerate(batches):
            if number == 0 and (batch.schema.metadata or {}).get(b"tether.part") == b"full":
                self._empty()
            self._load(batch)

    @abstractmethod
    def _load(self, batch: pa.RecordBatch) -> None:
        """Make a batch of exported entries both live and durable."""

    @abstractmethod
    def _empty(self) -> None:
        """Drop everything, while restoring."""

    def create(self) -> None:
        """Nothing to set up: a blank page is an empty primitive."""

    def begin(self) -> None:
        """Forget the journal of the epoch before."""
        self._cells.begin()
        self.place.sweep()

    def undo(self) -> None:
        """Put all rows back to the beginning of the epoch."""
        words = self.place.page.words
        if words[GENERATION] != self.place.page.saved(GENERATION):
            words[GENERATION] = self.place.page.saved(GENERATION)
        self.refresh()
        self._cells.undo()

    def unstamp(self) -> None:
        """Forget which epoch journaled which row."""
        self._cells.unstamp()

    def refresh(self) -> None:
        """Follow what other processes did."""
        if self._generation != self.place.page.words[GENERATION]:
            self._open()
        else:
            self.place.refresh()


def _tagged(batch: pa.RecordBatch, metadata: dict[bytes, bytes]) -> pa.RecordBatch:
    return batch.replace_schema_metadata(metadata)
