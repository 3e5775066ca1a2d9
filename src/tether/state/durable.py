"""Rows of numbers and their durable copies: their distance, and what must be written.

The durable copy is what a recovery would find in the backups. Rows that may differ from it are listed as
dirty; other rows are never read here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.state.dirty import DirtyRows
from tether.state.divergence import Divergence, sum_up
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
    SETTLED_CLEARED,
    SETTLED_CLEARED_KEYS,
    STEP_ROWS,
    STEP_UNDO,
    UNDO_COUNT,
)
from tether.state.journal import UndoLog
from tether.state.pending import Held, PendingRows
from tether.state.rounding import rounded_words
from tether.state.rows import (
    CHUNK,
    Rows,
    assign,
    count_of,
    gather,
    gather_side,
    numbers_of,
    pieces,
)
from tether.state.selection import worst_first
from tether.state.starts import Starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tether.state.columns import Column
    from tether.state.norms import Norm
    from tether.state.place import Place
    from tether.state.segment import Array, Segment

DIRTY, IN_BACKUP = 1, 2
FITS = 1 << 63


class Choice(NamedTuple):
    """The dirty rows that a backup must contain."""

    rows: Array
    """Rows to be written."""
    remaining: Array
    """Rows that stay dirty."""
    left: Divergence
    """The divergence from these."""
    steps: Mapping[int, int] | None = None
    """To what columns are rounded where they are written (:mod:`tether.state.rounding`)."""


class DurableCells:
    """The rows of one primitive, with what the backups hold of them.

    Args:
        place: Where the primitive lives.
        columns: Value columns.
        norm: Divergence.
        weights: Factor of each column's differences.
        keyed: Whether rows are created over time (keys), so that the backups may not contain them yet.
            Rows of a vector always exist.
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
        # Live and durable numbers are stored side by side, so that a change reads both in one access.
        self._sides = 2 if place.track else 1
        self._starts = Starts(columns, self._sides)
        self.distance = Divergence(norm, self._numeric, weights, self._page)
        prefix = f"{self._page.words[GENERATION]}."
        self._numbers = self._open(f"{prefix}numbers", "i8", self._sides * self._width)
        self._flags = self._open(f"{prefix}flags", "u1", self._flag_width)
        self._mark = place.segment(f"{prefix}mark", "u2")
        kept = [("i8", self._width)] * (self._width > 0)
        flags = [("u1", self._flag_width)] * (self._flag_width > 0)
        self._undo = UndoLog(place, "undo", UNDO_COUNT, kept + flags)
        self._seen: tuple[Rows, Array, Array] | None = None
        """Dirty rows, whether they differ and what they add; valid until the next change."""
        if place.track:
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
        assert self._numbers is not None
        return self._numbers.data.view("f8" if column.floating else "i8")[:, column.at]

    def take(self, rows: Array | slice, name: str) -> Array:
        """A copy of the live values of some rows."""
        view = self._view(name)
        # Not view.take: of a strided view that would copy every row there is.
        return view[rows].copy() if isinstance(rows, slice) else view[rows]

    def words(self, rows: Rows) -> Array:
        """A copy of some rows' numbers as they are stored, one line per row."""
        return gather_side(self._numbers, rows, 0, self._sides)

    def durable_words(self, rows: Rows) -> Array:
        """The same of their durable copies; only where these are tracked."""
        return gather_side(self._numbers, rows, 1, self._sides)

    def sides(self, rows: Rows) -> tuple[Array, Array]:
        """A copy of some rows' live numbers, and of their durable ones; none if not tracked."""
        both = gather(self._numbers, rows)
        return both[:, : self._width], both[:, self._width :]

    def flag_words(self, rows: Rows) -> Array:
        """A copy of some rows' flags as they are stored."""
        return gather(self._flags, rows, "u1")

    def changed(self) -> Array:
        """Rows changed or added in this epoch (or, after its commit, in the last one).

        Of an epoch in steps, those of the newest step.
        """
        first_new, words = self._rows_at_begin(), self._page.words
        undone = np.zeros(0, np.int32)
        if not self._new_generation:
            first_new = max(first_new, int(words[STEP_ROWS]))
            undone = self._undo.rows()[words[STEP_UNDO] :]
        return np.concatenate([undone.astype(np.intp), np.arange(first_new, len(self))])

    def changed_count(self) -> int:
        """The number of these rows, without reading them."""
        if self._new_generation:
            return len(self)
        words = self._page.words
        first_new = max(self._rows_at_begin(), int(words[STEP_ROWS]))
        return len(self._undo.rows()) - int(words[STEP_UNDO]) + len(self) - first_new

    def journal_bytes(self) -> int:
        """Memory of all old values that a rollback would put back."""
        durable = self._undo_durable.bytes() if self.place.track else 0
        return self._undo.bytes() + durable

    def narrow(self, rows: int) -> bool:
        """Whether sums over so many rows of integers surely fit 64 bits."""
        return bool(2 * self._page.words[PEAK] * max(rows, 1) < FITS)

    # The durable side

    def divergence(self, *, exact: bool) -> float:
        """Distance to the backups, never too small. ``exact`` may look at all dirty rows."""
        if not self.place.track:
            return 0.0
        words, cleared = self._page.words, self._page.floats[CLEARED]
        if self.distance.norm == "count":
            # Keys that only the state has, and keys that perhaps only the backups have.
            return float(words[ROWS] - words[BACKED] + words[CLEARED_KEYS])
        if not self.distance.columns:  # no column counts
            return cleared
        value = self.distance.value()
        if exact and not (self.distance.exact and not math.isnan(value)):
            bound, now = value, self._closer()
            value = now.value()
            if self.place.applying and not math.isnan(bound):
                # If the bound was far off, it may be used again; otherwise precise sums are better.
                self.distance.precise = 2 * value > bound
        elif math.isnan(value):
            afresh = self._afresh(self._listed())
            value = afresh.value()
            if self.place.applying:  # else a kill between two words might leave too small a sum
                self.distance.adopt(afresh)
        return sum_up((value, cleared)) if cleared else value

    def _closer(self) -> Divergence:
        """The divergence from all dirty rows; the comparison is kept for a following backup."""
        rows, seen = self._listed(), None
        if self.distance.all_whole:
            differs, amounts = self._compare(rows)
            seen = rows, differs, amounts
            now = self._distance_of(rows, amounts)
        else:
            now = self._afresh(rows)
        if self.place.applying:  # else a kill between two words might leave too small a sum
            self.distance.adopt(now)
            self._seen = seen
        return now

    def _listed(self) -> Rows:
        """The rows that are listed as dirty; all of them in order, which is several times faster."""
        return slice(0, len(self)) if len(self.dirty) == len(self) else self.dirty.rows()

    def _distance_of(self, rows: Rows, amounts: Array) -> Divergence:
        """The divergence if only these rows differ, given what each of them adds."""
        return self.distance.of(amounts) or self._afresh(rows)

    def choose(self, target: float) -> Choice:
        """What must be backed up to get to ``target``, and what stays dirty."""
        if self._seen is None:
            listed = self._listed()
            self._seen = (listed, *self._compare(listed))
        listed, differs, amounts = self._seen
        rows = numbers_of(listed)
        if target <= 0:
            return self._everything(rows[differs])
        if self.distance.norm == "count":
            unknown = np.flatnonzero((self._mark.data.take(rows) & IN_BACKUP) == 0)
            surplus = math.ceil(self.divergence(exact=False) - target)
            chosen = np.zeros(len(rows), bool)
            chosen[unknown[:surplus]] = True
        else:
            limit = self.distance.limits(target, self._page.words[PEAK], len(rows))
            largest = self.distance.norm == "max"
            chosen = amounts > limit if largest else worst_first(amounts, limit)
        stay = ~chosen & differs
        left = self._distance_of(rows[stay], amounts[stay])
        if left.value() > target:  # rounding took more than was allowed for it
            return self._everything(rows[differs])
        return Choice(rows[chosen], rows[stay], left)

    def all_rows(self) -> Choice:
        """What a backup of the whole state contains."""
        return self._everything(np.arange(len(self)))

    def _everything(self, rows: Array) -> Choice:
        none = np.zeros(0, np.intp)
        return Choice(rows, none, self._distance_of(none, np.zeros(0)))

    def _compare(self, rows: Rows) -> tuple[Array, Array]:
        """The rows in which a restored state would differ, and what each adds to the divergence."""
        count = count_of(rows)
        differs = np.full(count, self._flag_width > 0)  # flags have no copy to compare with
        amounts = np.zeros(count)
        narrow = self.narrow(count)
        for part, some in pieces(rows):
            if self._width:
                live, durable = self.sides(some)
                differs[part] |= (live != durable).any(axis=1)
                amounts[part] = self.distance.per_row(live, durable, narrow=narrow)
            if self._keyed:
                differs[part] |= (self._mark.data[some] & IN_BACKUP) == 0
        return differs, amounts

    def mark_durable(self, choice: Choice) -> None:
        """Take the chosen rows as written to the backups, and only the others as still dirty."""
        for _, some in pieces(choice.rows):
            words = self.words(some)
            if choice.steps:
                words = rounded_words(words, choice.steps)
            self._store_durable(some, words)
        self._list_dirty(choice.remaining, choice.left)

    def mark_all_durable(self) -> None:
        """Take all rows as written to the backups: those not listed are there already."""
        for _, some in pieces(self._listed()):
            self._store_durable(some, self.words(some))
        nothing = self._everything(np.zeros(0, np.intp))
        self._list_dirty(nothing.remaining, nothing.left)

    def _store_durable(self, rows: Rows, values: Array) -> None:
        marks = np.array(self._mark.data[rows])
        if not self._new_generation:
            kept = [self.durable_words(rows)] if self._width else []
            self._undo_durable.append(numbers_of(rows), (marks & IN_BACKUP).astype(np.uint8), *kept)
        if self._numbers is not None:
            assign(self._numbers, rows, values, self._width)
        self._page.words[BACKED] += int(np.count_nonzero((marks & IN_BACKUP) == 0))
        self._mark.data[rows] = marks | IN_BACKUP

    def forget_seen(self) -> None:
        """Drop the kept comparison of dirty rows, because something is about to change."""
        self._seen, self.distance.tight = None, False

    def _list_dirty(self, remaining: Array, left: Divergence) -> None:
        self.forget_seen()
        self._mark.data[self._listed()] &= ~np.uint16(DIRTY)
        self._mark.data[remaining] |= np.uint16(DIRTY)
        self.dirty.replace(remaining)
        self.distance.adopt(left)
        self.distance.precise = False

    def hold(self, choice: Choice, *, full: bool) -> float:
        """Remember rows as being written; give the divergence if they were durable already."""
        rows = choice.rows
        known = np.count_nonzero(self._mark.data.take(rows) & IN_BACKUP)
        new_keys = len(rows) - int(known)
        held = Held(rows, self.words(rows), self.flag_words(rows))
        self.pending.hold(held, full=full, new_keys=new_keys)
        if full:
            return 0.0
        if self.distance.norm == "count":
            return float(self._page.words[ROWS] - self._page.words[BACKED] - new_keys)
        return choice.left.value()

    def settle(self) -> None:
        """Take what is being written as durable, as it was when it was taken out.

        Rows that changed since stay dirty. After a ``clear`` the rows are gone, and what the backups
        hold beyond the live state is what ``note_cleared`` found.
        """
        words, page = self._page.words, self._page
        full = self.pending.part == ALL_ENTRIES
        if not self.pending.current:
            page.floats[CLEARED] = page.floats[SETTLED_CLEARED]
            words[CLEARED_KEYS] = words[SETTLED_CLEARED_KEYS]
            self.pending.drop()
            return
        held = self.pending.held()
        for part, some in pieces(held.rows):
            self._store_durable(some, held.words[part])
        if full:
            page.floats[CLEARED] = 0.0
            words[CLEARED_KEYS] = 0
        listed = self.dirty.rows()
        differs, amounts = self._compare(listed)
        if self._flag_width:  # not compared by that: clean only if unchanged since it was taken out
            same = (self.flag_words(held.rows) == held.flags).all(axis=1)
            same &= (self.words(held.rows) == held.words).all(axis=1)
            self._mark.data[held.rows[same]] &= ~np.uint16(DIRTY)
            differs &= (self._mark.data.take(listed) & DIRTY) != 0
        left = self._distance_of(listed[differs], amounts[differs])
        self._list_dirty(listed[differs], left)
        self.pending.drop()

    def _afresh(self, rows: Rows) -> Divergence:
        """The divergence recomputed, given all rows that may differ."""
        pairs = (self.sides(some) for _, some in pieces(rows))
        return self.distance.afresh(pairs, narrow=self.narrow(CHUNK))

    def note_cleared(self) -> None:
        """Before all rows are dropped, note what the backups contain in addition to the live state.

        An export that is being written may be settled or abandoned later. So both are noted: what the
        backups hold without it, and with it. Once anything was cleared an export is of the whole state,
        and replaces what the backups held before; so nothing of that adds to the latter.
        """
        words, floats = self._page.words, self._page.floats
        rows = np.flatnonzero(self._mark.data[: len(self)] & IN_BACKUP)
        if self.pending.current:
            held = self.pending.held()
            others = np.setdiff1d(rows, held.rows, assume_unique=True)
            floats[SETTLED_CLEARED] = self._size([*self._durable_parts(others), held.words])
            words[SETTLED_CLEARED_KEYS] = words[BACKED] + words[PENDING_KEYS]
        floats[CLEARED] = sum_up((floats[CLEARED], self._size(self._durable_parts(rows))))
        words[CLEARED_KEYS] += words[BACKED]

    def _durable_parts(self, rows: Array) -> Iterator[Array]:
        return (self.durable_words(some) for _, some in pieces(rows))

    def _size(self, parts: Iterable[Array]) -> float:
        """Distance of some rows from an empty state."""
        pairs = ((part, np.broadcast_to(self._starts.words, part.shape)) for part in parts)
        return self.distance.afresh(pairs, narrow=self.narrow(CHUNK)).value()

    @property
    def _new_generation(self) -> bool:
        return bool(self._page.words[GENERATION] != self._page.saved(GENERATION))

    def _rows_at_begin(self) -> int:
        return 0 if self._new_generation else self._page.saved(ROWS)
