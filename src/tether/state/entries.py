"""The common part of primitives whose entries are backed up one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tether.state.header import CLEARED, CLEARED_KEYS, GENERATION, PENDING_PART, Phase
from tether.state.primitive import FULL, PARTIAL, Export, Primitive, is_full, tagged
from tether.state.rounding import rounded_batch, rounded_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from tether.state.cells import Cells
    from tether.state.durable import Choice
    from tether.state.place import Place
    from tether.state.segment import Array


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
            exact: Not just an upper bound; may look at all dirty entries.
        """
        return self._cells.divergence(exact=exact)

    def dirty_entries(self) -> int:
        """Entries that may differ from the backups, those that the backups should not have too."""
        if not self.place.track:
            return 0
        return len(self._cells.dirty) + int(self.place.page.words[CLEARED_KEYS])

    def changed_entries(self) -> int:
        """Entries changed or added in this epoch: what a policy that loses nothing would write."""
        return self._cells.changed_count()

    def export(self, target: float, rounding: float = 0.0) -> Export:
        """Export the fewest worst entries so that the remaining divergence is at most ``target``.

        They count as durable from here on; if writing them fails, roll the epoch back. A target of 0
        takes out every difference, also those that the divergence does not measure, so that restoring
        gives exactly this state: unless ``rounding`` allows floats to be rounded, which adds at most
        so much to the divergence that remains.

        Raises:
            BadValueError: The target is negative, or backups are not tracked.
        """
        self._check_target(target)
        before = self.divergence(exact=True)
        choice = self._chosen(before, target)
        if choice is None:
            return Export([], 0, 0.0, before, full=False)
        if self._whole_instead(len(choice.rows)):
            return self.export_full(rounding)
        choice, steps = rounded_choice(self._cells, choice, rounding, target + rounding)
        batches = [
            tagged(rounded_batch(batch, steps), PARTIAL) for batch in self._batches(choice.rows)
        ]
        self._cells.mark_durable(choice)
        after = self.divergence(exact=True)
        return Export(batches, len(choice.rows), before - after, after, full=False)

    def _chosen(self, before: float, target: float) -> Choice | None:
        """Rows that an export must hold and those that stay dirty; None if it need hold nothing."""
        if before <= target and (target > 0 or not self.dirty_entries()):
            return None
        return self._cells.choose(target)

    def _whole_instead(self, entries: int) -> bool:
        return bool(self.place.page.words[CLEARED_KEYS]) or self._smaller_whole(entries)

    def export_full(self, rounding: float = 0.0) -> Export:
        """Take out the whole state; all of it counts as durable from here on.

        Args:
            rounding: Most divergence that floats may be rounded by.
        """
        self.place.stamp()
        self._expect_none_pending()
        before = self.divergence(exact=True)
        steps: Mapping[str, int] = {}
        if self.place.track and rounding > 0:
            choice, steps = rounded_choice(self._cells, self._cells.all_rows(), rounding, rounding)
        batches = [tagged(rounded_batch(batch, steps), FULL) for batch in self._all_batches()]
        entries = sum(batch.num_rows for batch in batches)
        if self.place.track:
            if steps:
                self._cells.mark_durable(choice)
            else:
                self._cells.mark_all_durable()
            self.place.page.floats[CLEARED] = 0.0
            self.place.page.words[CLEARED_KEYS] = 0
        after = self.divergence(exact=True) if steps else 0.0
        return Export(batches, entries, before - after, after, full=True)

    def begin_export(self, target: float) -> Export:
        """Take out what ``export`` would, but count it as durable only when it is settled.

        Costs what ``export`` does, and the memory of the entries taken out until then.
        """
        self._check_target(target)
        before = self.divergence(exact=True)
        choice = self._chosen(before, target)
        if choice is None:
            return Export([], 0, 0.0, before, full=False)
        rows = choice.rows
        full = self._whole_instead(len(rows))
        if full:
            choice = self._cells.choose(0.0)
        elif not len(rows):  # computed again, it is already at the target
            self._cells.distance.adopt(choice.left)
            return Export([], 0, 0.0, self.divergence(exact=True), full=False)
        tag = FULL if full else PARTIAL
        batches = [
            tagged(batch, tag) for batch in (self._all_batches() if full else self._batches(rows))
        ]
        after = self._cells.hold(choice, full=full)
        entries = sum(batch.num_rows for batch in batches)
        return Export(batches, entries, before - after, after, full=full)

    def settle_export(self) -> None:
        """Count what ``begin_export`` took out as durable; entries changed since stay dirty."""
        self.place.stamp()
        if self.place.page.words[PENDING_PART]:
            self._cells.settle()

    def abandon_export(self) -> None:
        """Forget what ``begin_export`` took out; it was never counted."""
        self.place.stamp()
        if self.place.page.words[PENDING_PART]:
            self._cells.pending.drop()

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply one exported part: its entries become both live and durable.

        Parts are applied in the order in which they were exported; later ones win, and a full
        one replaces everything before it.
        """
        self.place.expect(Phase.RESTORING)
        parts = list(batches)
        if parts and is_full(parts[0]):
            self._empty()
        self._expect(sum(batch.num_rows for batch in parts))
        for batch in parts:
            self._load(batch)

    def _expect(self, entries: int) -> None:
        """Prepare for this number of entries, which will be loaded next."""

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

    def journal_bytes(self) -> int:
        """Memory of the old values that a rollback would put back."""
        return self._cells.journal_bytes()

    def begin_step(self) -> None:
        """Begin a new step: changes so far belong to an earlier one."""
        self._cells.begin_step()

    def commit(self) -> None:
        """Nothing to do: all changes are in the arena as they are made."""

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
