"""Rows of numbers with their values at the beginning of the epoch, and in the backups.

``Cells`` is the basis of every numeric primitive. A row has one or more 64-bit numbers (and perhaps
flags), the durable copy of the numbers, and a mark: which epoch journaled it last, whether it is listed
as dirty, and whether the backups know it. Every change of many rows is a handful of NumPy calls on the
rows concerned; nothing depends on how many rows there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.state.durable import DIRTY, FITS, IN_BACKUP, DurableCells
from tether.state.header import BACKED, PEAK, ROWS, STEP_ROWS, STEP_UNDO
from tether.state.rows import assign, gather, numbers_of, scatter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.segment import Array
    from tether.state.updates import Staged

STAMP_SHIFT = 2
LAST_STAMP = (1 << 16 - STAMP_SHIFT) - 1


class Carried(NamedTuple):
    """Rows on their way into a new generation."""

    numbers: Array
    """Live and, if tracked, durable ones."""
    marks: Array


class Cells(DurableCells):
    """Tracked rows of one primitive: how they change, and how an epoch is undone."""

    # Changing

    def lay(self, start: int, stop: int, stamp: int) -> None:
        """Prepare new rows: with start values, not in the backups, nothing to journal.

        Values left by rolled-back rows are overwritten. The caller makes the rows exist by storing their
        number in the header.
        """
        if self._numbers is not None:
            self._numbers.ensure(stop)
            self._numbers.data[start:stop] = self._starts.line
            self._page.words[PEAK] = max(self._page.words[PEAK], self._starts.peak)
        if self._flags is not None:
            self._flags.ensure(stop)
            self._flags.data[start:stop] = self._starts.flags
        self._mark.ensure(stop)
        self._mark.data[start:stop] = stamp << STAMP_SHIFT

    def apply(self, staged: Staged, stamp: int) -> None:
        """Carry out a change that ``updates.stage`` has computed and found valid.

        Steps, in an order that a kill may cut anywhere: 1 journal, 2 list as dirty, 3 mark as
        journaled and dirty, 4 divergence, 5 values. Rollback needs 1 to come before 3 and 5; the
        list and the divergence it restores from the header's saved words.
        """
        rows = staged.rows
        self.forget_seen()
        newly_dirty = self._touch(staged, stamp)
        if self._whole:
            self._page.words[PEAK] = max(self._page.words[PEAK], staged.peak)
        if self.place.track and self.distance.columns:
            self._measure(staged, newly_dirty)
        for at, (_, new) in staged.values.items():
            assert self._numbers is not None
            scatter(self._numbers.data, at, rows, new)
        for at, new in staged.flags.items():
            assert self._flags is not None
            scatter(self._flags.data, at, rows, new)

    def _measure(self, staged: Staged, newly_dirty: int) -> None:
        """Update the divergence for a change; only the changed rows are read.

        In the precise way, where a change touches again half of all that is dirty, it is cheaper to
        look at all dirty rows once, when the divergence is asked for: most likely many such changes
        come before that.
        """
        if self.distance.stale:
            return
        narrow = self.narrow(staged.count)
        if not self.distance.precise:
            self.distance.widen(staged.values, narrow=narrow)
            return
        if 2 * (staged.count - newly_dirty) >= len(self.dirty):
            self.distance.defer()
            return
        durable = self.durable_words(staged.rows)
        changes = {
            at: (old, new, durable[:, at].view(new.dtype))
            for at, (old, new) in staged.values.items()
        }
        self.distance.update(changes, narrow=narrow)

    def _touch(self, staged: Staged, stamp: int) -> int:
        """Journal rows and list them as dirty where they are not yet; give the number listed."""
        tag = stamp << STAMP_SHIFT
        marks = self._mark.data[staged.rows]
        settled = tag | IN_BACKUP | (DIRTY if self.place.track else 0)
        at = ((marks | IN_BACKUP) != settled).nonzero()[0]
        if not len(at):
            return 0
        rows = numbers_of(staged.rows)
        whole = len(at) == len(rows)
        if not whole:
            rows, marks = rows[at], marks[at]
        first = (marks < tag).nonzero()[0]
        if len(first):
            kept = [part if whole else part[at] for part in staged.old]
            if len(first) == len(rows):
                self._undo.append(rows, *kept)
            else:
                self._undo.append(rows[first], *(part[first] for part in kept))
        listed = len(self.dirty) if self.place.track else 0
        if self.place.track:
            clean = (marks & DIRTY) == 0
            self.dirty.append(rows if clean.all() else rows[clean])
            tag |= DIRTY
        where = staged.rows if whole else rows
        self._mark.data[where] = (marks & IN_BACKUP) | tag
        return len(self.dirty) - listed if self.place.track else 0

    def load(self, rows: Array, values: Mapping[str, Array]) -> None:
        """Take values as both live and durable: they come from the backups. Not journaled."""
        for name, new in values.items():
            column = self.columns[name]
            if column.flag:
                assert self._flags is not None
                scatter(self._flags.data, column.at, rows, new)
                continue
            if not column.floating and len(new):
                peak = max(abs(int(new.min())), abs(int(new.max())))
                self._page.words[PEAK] = max(self._page.words[PEAK], min(peak, FITS - 1))
            assert self._numbers is not None
            scatter(self._numbers.data, column.at, rows, new)
            if self.place.track:
                scatter(self._numbers.data, self._width + column.at, rows, new)
        self._mark.data[rows] = IN_BACKUP
        self._page.words[BACKED] = self._page.words[ROWS]

    # A new generation of rows

    def carry(self) -> tuple[Array, Carried]:
        """Rows that are not 0 on both sides, with all their data."""
        assert self._numbers is not None
        rows = np.asarray(self._numbers.data[: len(self)].any(axis=1)).nonzero()[0]
        marks = self._mark.data.take(rows) & np.uint16(DIRTY | IN_BACKUP)
        return rows, Carried(gather(self._numbers, rows), marks)

    def lay_carried(self, carried: Carried, stamp: int) -> None:
        """Fill rows that were just made, from 0 on, with what was carried over."""
        count = len(carried.marks)
        self.lay(0, count, stamp)
        self._page.words[ROWS] = count
        assert self._numbers is not None
        self._numbers.data[:count] = carried.numbers
        self._mark.data[:count] |= carried.marks
        if self.place.track:
            self._page.words[BACKED] = int(np.count_nonzero(carried.marks & IN_BACKUP))
            dirty = (carried.marks & DIRTY).nonzero()[0]
            self.dirty.append(dirty)
            self.distance.adopt(self._afresh(dirty))

    # Epochs

    def begin(self) -> None:
        """Forget the journal of the epoch before."""
        self.forget_seen()  # another process may have changed rows in between
        self._undo.begin()
        self.begin_step()
        if self.place.track:
            self._undo_durable.begin()
            self.dirty.begin()
            self.pending.begin()

    def begin_step(self) -> None:
        """Changes so far are not part of ``changed`` any more; the journal keeps them."""
        self.forget_seen()
        self._page.words[STEP_UNDO] = len(self._undo.rows())
        self._page.words[STEP_ROWS] = len(self)

    def unstamp(self) -> None:
        """Forget which epoch journaled which row: the numbers are about to be used again."""
        self._mark.data[: len(self)] &= np.uint16(DIRTY | IN_BACKUP)

    def undo(self) -> None:
        """Put all rows back to the beginning of the epoch. The header's words follow later."""
        self.forget_seen()
        rows, *kept = self._undo.entries()
        for segment, old in zip((s for s in (self._numbers, self._flags) if s), kept, strict=True):
            assign(segment, rows, old)
        if not self.place.track:
            return
        saved_rows, marks, *durable = self._undo_durable.entries()
        if durable and self._numbers is not None:
            assign(self._numbers, saved_rows, durable[0], self._width)
        self._mark.data[saved_rows] = marks
        self._mark.data[rows] &= np.uint16(IN_BACKUP)
        self._mark.data[self.dirty.rows_at_begin()] |= np.uint16(DIRTY)
