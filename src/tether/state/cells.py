"""Rows of numbers that remember what they were: in this epoch's beginning, and in the backups.

``Cells`` is what every numeric primitive is made of. A row has one or more 64-bit numbers (and
perhaps flags), the durable copy of the numbers, and a mark: which epoch journaled it last, whether
it is listed as dirty, and whether the backups know it. Every change of many rows is a handful of
NumPy calls on the rows concerned; nothing depends on how many rows there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.state.dirty import DirtyRows
from tether.state.divergence import Divergence
from tether.state.header import (
    ALL_ENTRIES,
    BACKED,
    CLEARED,
    CLEARED_KEYS,
    DURABLE_COUNT,
    GENERATION,
    PEAK,
    PENDING_KEYS,
    ROWS,
    UNDO_COUNT,
)
from tether.state.journal import UndoLog
from tether.state.pending import Held, PendingRows
from tether.state.rows import CHUNK, assign, chunks, gather, scatter
from tether.state.selection import worst_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tether.state.columns import Column
    from tether.state.divergence import Norm
    from tether.state.place import Place
    from tether.state.segment import Array, Segment
    from tether.state.updates import Staged

DIRTY, IN_BACKUP = 1, 2
STAMP_SHIFT = 2
LAST_STAMP = (1 << 16 - STAMP_SHIFT) - 1
_FITS = 1 << 63


class Carried(NamedTuple):
    """Rows on their way into a new generation."""

    words: Array
    durable: Array | None
    marks: Array


class Cells:
    """Tracked rows of one primitive.

    Args:
        place: Where the primitive lives.
        columns: Value columns.
        norm: Divergence.
        weights: Factor of each column's differences.
        keyed: Whether a row comes to exist at some time (a key), so that the backups may not know
            it yet. Rows of a vector always exist.
    """

    def __init__(
        self,
        place: Place,
        columns: Sequence[Column],
        norm: Norm,
        weights: Mapping[str, float],
        *,
        keyed: bool,
    ) -> None:
        self.place = place
        self.columns = {column.name: column for column in columns}
        self._numeric = [column for column in columns if not column.flag]
        self._page = place.page
        self._keyed = keyed
        self._width = len(self._numeric)
        self._flag_width = len(columns) - self._width
        self._whole = any(not column.floating for column in self._numeric)
        self.distance = Divergence(norm, self._numeric, weights, self._page)
        prefix = f"{self._page.words[GENERATION]}."
        self._live = self._open(f"{prefix}live", "i8", self._width)
        self._flags = self._open(f"{prefix}flags", "u1", self._flag_width)
        self._mark = place.segment(f"{prefix}mark", "u2")
        kept = [("i8", self._width)] * (self._width > 0)
        flags = [("u1", self._flag_width)] * (self._flag_width > 0)
        self._undo = UndoLog(place, "undo", UNDO_COUNT, kept + flags)
        if place.track:
            self._durable = self._open(f"{prefix}durable", "i8", self._width)
            self.dirty = DirtyRows(place, prefix)
            self.pending = PendingRows(place, self._width, self._flag_width)
            self._undo_durable = UndoLog(place, "durable", DURABLE_COUNT, [("u1", 0), *kept])

    def _open(self, name: str, dtype: str, width: int) -> Segment | None:
        return self.place.segment(name, dtype, width) if width else None

    def __len__(self) -> int:
        return int(self._page.words[ROWS])

    # Reading

    def column(self, name: str) -> Array:
        """Live values of all rows as a view that must not be kept beyond the next change."""
        return self._view(name)[: len(self)]

    def _view(self, name: str) -> Array:
        column = self.columns[name]
        if column.flag:
            assert self._flags is not None
            return self._flags.data[:, column.at]
        assert self._live is not None
        return self._live.data.view("f8" if column.floating else "i8")[:, column.at]

    def take(self, rows: Array | slice, name: str) -> Array:
        """A copy of the live values of some rows."""
        view = self._view(name)
        return view[rows].copy() if isinstance(rows, slice) else view.take(rows)

    def words(self, rows: Array) -> Array:
        """A copy of some rows' numbers as they are stored, one line per row."""
        return gather(self._live, rows)

    def flag_words(self, rows: Array) -> Array:
        """A copy of some rows' flags as they are stored."""
        return gather(self._flags, rows, "u1")

    def changed(self) -> Array:
        """Rows changed or added in this epoch (or, after its commit, in the last one)."""
        first_new = self._rows_at_begin()
        undone = self._undo.rows() if not self._new_generation else np.zeros(0, np.int32)
        return np.concatenate([undone.astype(np.intp), np.arange(first_new, len(self))])

    # Changing

    def lay(self, start: int, stop: int, stamp: int) -> None:
        """Prepare rows that do not exist yet: all zero, not in the backups, nothing to journal.

        Rolled-back rows left their values behind, so they are overwritten here. The caller makes
        the rows exist by storing their number in the header.
        """
        for segment in (self._live, self._flags, self._durable if self.place.track else None):
            if segment is not None:
                segment.ensure(stop)
                segment.data[start:stop] = 0
        self._mark.ensure(stop)
        self._mark.data[start:stop] = stamp << STAMP_SHIFT

    def apply(self, staged: Staged, stamp: int) -> None:
        """Carry out a change that ``updates.stage`` has computed and found valid.

        Steps, in an order that a kill may cut anywhere: 1 journal, 2 list as dirty, 3 mark as
        journaled and dirty, 4 divergence, 5 values. Rollback needs 1 to come before 3 and 5; the
        list and the divergence it restores from the header's saved words.
        """
        rows = staged.rows
        self._touch(staged, stamp)
        if self._whole:
            self._page.words[PEAK] = max(self._page.words[PEAK], staged.peak)
        if self.place.track and self.distance.columns:
            durable = gather(self._durable, rows)
            changes = {}
            for at in self.distance.columns & staged.values.keys():
                old, new = staged.values[at]
                changes[at] = (old, new, durable[:, at].view(new.dtype))
            self.distance.update(changes, narrow=self._narrow(len(rows)))
        for at, (_, new) in staged.values.items():
            assert self._live is not None
            scatter(self._live.data, at, rows, new)
        for at, new in staged.flags.items():
            assert self._flags is not None
            scatter(self._flags.data, at, rows, new)

    def _touch(self, staged: Staged, stamp: int) -> None:
        rows = staged.rows
        tag = stamp << STAMP_SHIFT
        marks = self._mark.data.take(rows)
        settled = tag | IN_BACKUP | (DIRTY if self.place.track else 0)
        at = ((marks | IN_BACKUP) != settled).nonzero()[0]
        if not len(at):
            return
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
        if self.place.track:
            clean = (marks & DIRTY) == 0
            self.dirty.append(rows if clean.all() else rows[clean])
            tag |= DIRTY
        self._mark.data[rows] = (marks & IN_BACKUP) | tag

    def _narrow(self, rows: int) -> bool:
        return bool(2 * self._page.words[PEAK] * max(rows, 1) < _FITS)

    # The durable side

    def divergence(self, *, exact: bool) -> float:
        """Distance to the backups, never too small. ``exact`` looks at all dirty rows."""
        if not self.place.track:
            return 0.0
        words, cleared = self._page.words, self._page.floats[CLEARED]
        if self.distance.norm == "count":
            return float(abs(words[ROWS] - words[BACKED] - words[CLEARED_KEYS]))
        value = self.distance.value()
        if math.isnan(value) or (exact and self.distance.norm == "max"):
            afresh = self._afresh(self.dirty.rows())
            value = afresh.value()
            if self.place.applying:  # else a kill between two words might leave too small a sum
                self.distance.adopt(afresh)
        return value + cleared

    def choose(self, target: float) -> tuple[Array, Array]:
        """Dirty rows that must be backed up to get to ``target``, and those that stay dirty."""
        rows = self.dirty.rows()
        differs, amounts = self._compare(rows)
        if target <= 0:
            return rows[differs], rows[:0]
        if self.distance.norm == "count":
            unknown = np.flatnonzero((self._mark.data.take(rows) & IN_BACKUP) == 0)
            surplus = math.ceil(self.divergence(exact=False) - target)
            chosen = np.zeros(len(rows), bool)
            chosen[unknown[:surplus]] = True
        else:
            limit = self.distance.limits(target, self._page.words[PEAK], len(rows))
            largest = self.distance.norm == "max"
            chosen = amounts > limit if largest else worst_first(amounts, limit)
        return rows[chosen], rows[~chosen & differs]

    def _compare(self, rows: Array) -> tuple[Array, Array]:
        """Which rows a restored state would have otherwise, and what each adds to the divergence."""
        differs = np.full(len(rows), self._flag_width > 0)  # flags have no copy to compare with
        amounts = np.zeros(len(rows))
        narrow = self._narrow(len(rows))
        for part in chunks(len(rows)):
            some = rows[part]
            if self._width:
                live, durable = gather(self._live, some), gather(self._durable, some)
                differs[part] |= (live != durable).any(axis=1)
                amounts[part] = self.distance.per_row(live, durable, narrow=narrow)
            if self._keyed:
                differs[part] |= (self._mark.data.take(some) & IN_BACKUP) == 0
        return differs, amounts

    def mark_durable(self, rows: Array, remaining: Array) -> None:
        """Take ``rows`` as written to the backups, and only ``remaining`` as still dirty."""
        for part in chunks(len(rows)):
            self._store_durable(rows[part], gather(self._live, rows[part]))
        self._list_dirty(remaining)

    def _store_durable(self, rows: Array, values: Array) -> None:
        marks = self._mark.data.take(rows)
        if not self._new_generation:
            kept = [gather(self._durable, rows)] if self._width else []
            self._undo_durable.append(rows, (marks & IN_BACKUP).astype(np.uint8), *kept)
        if self._durable is not None:
            assign(self._durable, rows, values)
        self._page.words[BACKED] += int(np.count_nonzero((marks & IN_BACKUP) == 0))
        self._mark.data[rows] = marks | IN_BACKUP

    def _list_dirty(self, remaining: Array) -> None:
        self._mark.data[self.dirty.rows()] &= ~np.uint16(DIRTY)
        self._mark.data[remaining] |= np.uint16(DIRTY)
        self.dirty.replace(remaining)
        self.distance.adopt(self._afresh(remaining))

    def hold(self, rows: Array, remaining: Array, *, full: bool) -> float:
        """Remember ``rows`` as being written; give the divergence if they were durable already."""
        known = np.count_nonzero(self._mark.data.take(rows) & IN_BACKUP)
        new_keys = len(rows) - int(known)
        held = Held(rows, self.words(rows), self.flag_words(rows))
        self.pending.hold(held, full=full, new_keys=new_keys)
        if full:
            return 0.0
        if self.distance.norm == "count":
            return float(abs(self._page.words[ROWS] - self._page.words[BACKED] - new_keys))
        return self._afresh(remaining).value()

    def settle(self) -> None:
        """Take what is being written as durable, as it was when it was taken out.

        Rows that changed since stay dirty. After a ``clear`` only the count of what the backups
        hold beyond the live state is left to correct: their sizes were counted by then.
        """
        words, page = self._page.words, self._page
        full = self.pending.part == ALL_ENTRIES
        if not self.pending.current:
            words[CLEARED_KEYS] = words[PENDING_KEYS] + (0 if full else words[CLEARED_KEYS])
            self.pending.drop()
            return
        held = self.pending.held()
        for part in chunks(len(held.rows)):
            self._store_durable(held.rows[part], held.words[part])
        if full:
            page.floats[CLEARED] = 0.0
            words[CLEARED_KEYS] = 0
        listed = self.dirty.rows()
        differs, _ = self._compare(listed)
        if self._flag_width:  # not compared by that: clean only if unchanged since it was taken out
            same = (self.flag_words(held.rows) == held.flags).all(axis=1)
            same &= (self.words(held.rows) == held.words).all(axis=1)
            self._mark.data[held.rows[same]] &= ~np.uint16(DIRTY)
            differs &= (self._mark.data.take(listed) & DIRTY) != 0
        self._list_dirty(listed[differs])
        self.pending.drop()

    def _afresh(self, rows: Array) -> Divergence:
        """The divergence computed anew, given all rows that may differ."""
        parts = (rows[part] for part in chunks(len(rows)))
        pairs = ((gather(self._live, some), gather(self._durable, some)) for some in parts)
        return self.distance.afresh(pairs, narrow=self._narrow(CHUNK))

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
                self._page.words[PEAK] = max(self._page.words[PEAK], min(peak, _FITS - 1))
            assert self._live is not None
            scatter(self._live.data, column.at, rows, new)
            if self.place.track:
                assert self._durable is not None
                scatter(self._durable.data, column.at, rows, new)
        self._mark.data[rows] = IN_BACKUP
        self._page.words[BACKED] = self._page.words[ROWS]

    def durable_size(self) -> float:
        """Distance of the durable values from an empty state, and of those about to be durable."""
        rows = np.flatnonzero(self._mark.data[: len(self)] & IN_BACKUP)
        size = self._size(gather(self._durable, rows[part]) for part in chunks(len(rows)))
        if self.pending.current:
            size += self._size([self.pending.held().words])
        return size

    def _size(self, parts: Iterable[Array]) -> float:
        pairs = ((part, np.zeros_like(part)) for part in parts)
        return self.distance.afresh(pairs, narrow=self._narrow(CHUNK)).value()

    # A new generation of rows

    def carry(self) -> tuple[Array, Carried]:
        """Rows that are not 0 on both sides, and all there is to know about them."""
        words = self._live.data[: len(self)] if self._live is not None else np.empty((0, 0))
        used = np.asarray(words.any(axis=1))
        if self.place.track and self._durable is not None:
            used |= self._durable.data[: len(self)].any(axis=1)
        rows = used.nonzero()[0]
        durable = gather(self._durable, rows) if self.place.track else None
        marks = self._mark.data.take(rows) & np.uint16(DIRTY | IN_BACKUP)
        return rows, Carried(gather(self._live, rows), durable, marks)

    def lay_carried(self, carried: Carried, stamp: int) -> None:
        """Fill rows that were just made, from 0 on, with what was carried over."""
        count = len(carried.marks)
        self.lay(0, count, stamp)
        self._page.words[ROWS] = count
        if self._live is not None:
            self._live.data[:count] = carried.words
        self._mark.data[:count] |= carried.marks
        if self.place.track and carried.durable is not None:
            assert self._durable is not None
            self._durable.data[:count] = carried.durable
            self._page.words[BACKED] = int(np.count_nonzero(carried.marks & IN_BACKUP))
            dirty = (carried.marks & DIRTY).nonzero()[0]
            self.dirty.append(dirty)
            self.distance.adopt(self._afresh(dirty))

    # Epochs

    def begin(self) -> None:
        """Forget the journal of the epoch before."""
        self._undo.begin()
        if self.place.track:
            self._undo_durable.begin()
            self.dirty.begin()
            self.pending.begin()

    def unstamp(self) -> None:
        """Forget which epoch journaled which row: the numbers are about to be used again."""
        self._mark.data[: len(self)] &= np.uint16(DIRTY | IN_BACKUP)

    def undo(self) -> None:
        """Put all rows back to the beginning of the epoch. The header's words follow later."""
        rows, *kept = self._undo.entries()
        for segment, old in zip((s for s in (self._live, self._flags) if s), kept, strict=True):
            assign(segment, rows, old)
        if not self.place.track:
            return
        saved_rows, marks, *durable = self._undo_durable.entries()
        if durable and self._durable is not None:
            assign(self._durable, saved_rows, durable[0])
        self._mark.data[saved_rows] = marks
        self._mark.data[rows] &= np.uint16(IN_BACKUP)
        self._mark.data[self.dirty.rows_at_begin()] |= np.uint16(DIRTY)

    @property
    def _new_generation(self) -> bool:
        return bool(self._page.words[GENERATION] != self._page.saved(GENERATION))

    def _rows_at_begin(self) -> int:
        return 0 if self._new_generation else self._page.saved(ROWS)
