"""The index of a keyed state: from a key's hash to its row, by open addressing.

An array of row numbers, a power of two long, at most 0.6 full. A key's home is the top bits of its
hash; from there it probes in steps of 1, 2, 3, … (which visits every place). Whole batches probe
together, one step per round; each round only those keys are left that have met another key.

*An entry counts only if it is a row that exists*: negative entries and rows at or beyond the number
of rows are empty places. That is all a rollback needs. It lowers the number of rows, and the keys
added since are gone. Why no key becomes unreachable by it: a key is put at the first empty place of
its path, so all rows before it on the path are of an earlier epoch or of its own. Taking an epoch's
rows away empties places on the path of a row only if that row goes as well. Entries left behind may
point at a row that another key gets later; they then look like a collision and cost a probe, no
more. They do take up places, so places written are counted, and too many lead to a rebuild.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tether.core.errors import ArenaError
from tether.state.header import INDEX, KEY_WORDS

if TYPE_CHECKING:
    from tether.state.place import Place
    from tether.state.segment import Array

_SMALLEST = 10  # log2 of the places of a new index
_LARGEST = 32
_LOAD = 0.6
_CHUNK = 1 << 15  # rows placed together when rebuilding: their temporaries fit the cache
_EMPTY = -1
_FIRST_NAME = -2  # names of items in claims go down from here
_FIRST_GUESS = 1 << 16  # the first batch may hold few distinct keys
MOST_ROWS = (1 << 31) - 1


class Batch(Protocol):
    """A batch of keys, and the stored keys that it is compared with."""

    hashes: Array
    """32 bits for each key of the batch."""

    def equal(self, rows: Array, items: Array | None) -> Array:
        """Whether stored rows hold the keys of these items (None: of all), one by one."""

    def alike(self, items: Array, others: Array) -> Array:
        """Whether items of the batch have the same keys as other items of it, one by one."""

    def append(self, items: Array, start: int) -> None:
        """Store the keys of these items as rows from ``start`` on."""

    def stored_hashes(self, start: int, stop: int) -> Array:
        """The hashes of stored rows."""


class Index:
    """Places of the rows of one generation of a keyed state."""

    def __init__(self, place: Place, prefix: str, odd: bool) -> None:
        self._place = place
        self._prefix = prefix
        self._word = INDEX + KEY_WORDS * odd  # serial number of the file << 8 | log2 of places
        self._words = place.page.words
        self.expected = 0
        """Keys that are known to come: a first file for all of them need not grow with each batch."""
        self._open()

    def _open(self) -> None:
        self._known = self._words[self._word]
        if self._known:
            self._segment = self._place.segment(self._name(self._known), "i4", slack=False)
            self._bits = self._known & 0xFF
            self._places = self._segment.data[: 1 << self._bits]

    def _name(self, known: int) -> str:
        return f"{self._prefix}index.{known >> 8}"

    def refresh(self) -> None:
        """Follow a rebuild by another process."""
        if self._known != self._words[self._word]:
            self._place.release(self._name(self._known))
            self._open()

    def find(self, batch: Batch, existing: int) -> tuple[Array, Array, Array]:
        """Look a batch of keys up.

        Args:
            batch: The keys.
            existing: Number of rows that exist.

        Returns:
            Row of each key or -1, the place at which its search ended, and the steps it took.
        """
        count = len(batch.hashes)
        rows = np.full(count, _EMPTY, np.intp)
        steps = np.zeros(count, np.intp)
        if not self._known:
            return rows, steps, steps.copy()
        places = self._homes(batch.hashes)
        mask = len(self._places) - 1
        at, step = places, 0
        seeking: Array | None = None  # all of them
        while seeking is None or len(seeking):
            entries = self._places.take(at)
            taken = entries.view(np.uint32) < existing
            if not taken.all():
                met = taken.nonzero()[0]
                if seeking is not None:
                    ended = (~taken).nonzero()[0]
                    places[seeking.take(ended)] = at.take(ended)
                    steps[seeking.take(ended)] = step
                seeking = met if seeking is None else seeking.take(met)
                entries, at = entries.take(met), at.take(met)
            same = batch.equal(entries, seeking)
            hits, others = same.nonzero()[0], (~same).nonzero()[0]
            if seeking is None:
                rows[hits] = entries.take(hits)
                seeking = others
            else:
                rows[seeking.take(hits)] = entries.take(hits)
                seeking = seeking.take(others)
            step += 1
            at = (at.take(others) + step) & mask
        return rows, places, steps

    def insert(
        self, batch: Batch, found: tuple[Array, Array, Array], existing: int, boundary: int
    ) -> int:
        """Add the keys that ``find`` did not find; equal keys of the batch get one row.

        Rows are given in the order in which the keys first appear in the batch. Nothing exists
        until the caller stores the new number of rows in the header.

        Args:
            batch: The keys.
            found: What ``find`` returned; its rows are filled in.
            existing: Number of rows that exist.
            boundary: Number of rows that a rollback would leave.

        Returns:
            The number of rows with the added ones.
        """
        rows, places, steps = found
        absent = (rows < 0).nonzero()[0]
        if not self._known:
            guess = min(len(absent), _FIRST_GUESS)
            self._rebuild(batch, 0, max(guess, self.expected), boundary)
            places = self._homes(batch.hashes)
        start = places.take(absent), steps.take(absent)
        while True:
            won, leaders = self._settle(batch, absent, *start, existing)
            total = int(np.count_nonzero(won >= 0))
            if leaders is not None:
                break
            self._rebuild(batch, existing, total, boundary)
            start = self._homes(batch.hashes.take(absent)), np.zeros(len(absent), np.intp)
        _check_rows(existing + total)
        added = (won >= 0).nonzero()[0]
        batch.append(added, existing)
        new = np.arange(existing, existing + total)
        self._words[self._word + 1] += total
        self._places[won.take(added)] = new
        rows[added] = new
        followers = (leaders >= 0).nonzero()[0]
        rows[followers] = rows.take(leaders.take(followers))
        return existing + total

    def _settle(
        self, batch: Batch, seeking: Array, at: Array, steps: Array, existing: int
    ) -> tuple[Array, Array | None]:
        """Find a place for each new key of a batch by letting the keys write into the index.

        An item claims an empty place by writing its (negative) name there; the item that is
        read back has won it. Another item that meets the name later compares its key with the winner's.
        Names that a kill left behind are empty places: only those of this call's winners count.

        Returns:
            The place that each item of the batch won or -1; and the item with the same key that
            won for it or -1, or None if the index would become too full.
        """
        count = len(batch.hashes)
        won, leaders = np.full(count, _EMPTY, np.intp), np.full(count, _EMPTY, np.intp)
        room = int(_LOAD * len(self._places)) - self._words[self._word + 1]
        mask = len(self._places) - 1
        while len(seeking):
            entries = self._places.take(at)
            moving = entries.view(np.uint32) < existing
            free = ~moving
            ended = np.zeros(len(seeking), bool)
            if (entries < _EMPTY).any():
                named = (_FIRST_NAME - entries).astype(np.intp)
                claimed = (won.take(named, mode="clip") == at) & (entries < _EMPTY)
                met = claimed.nonzero()[0]
                free &= ~claimed
                same = batch.alike(seeking.take(met), named.take(met))
                moving[met] = ~same
                ended[met] = same
                hits = met.take(same.nonzero()[0])
                leaders[seeking.take(hits)] = named.take(hits)
            claims = free.nonzero()[0]
            winners = claims.take(self._claim(at.take(claims), seeking.take(claims)))
            won[seeking.take(winners)] = at.take(winners)
            ended[winners] = True
            room -= len(winners)
            if room < 0:
                return won, None
            # Losers of a claim look at the same place again: their own key may have won it.
            steps += moving
            at = np.where(moving, (at + steps) & mask, at)
            left = (~ended).nonzero()[0]
            seeking, at, steps = seeking.take(left), at.take(left), steps.take(left)
        return won, leaders

    def _claim(self, places: Array, items: Array) -> Array:
        names = (_FIRST_NAME - items).astype(np.int32)
        # The last of several writes stays, so in reverse the first item of the batch wins.
        self._places[places[::-1]] = names[::-1]
        won: Array = (self._places.take(places) == names).nonzero()[0]
        return won

    def _homes(self, hashes: Array) -> Array:
        return _shifted(hashes, _LARGEST - self._bits)

    def _rebuild(self, batch: Batch, rows: int, more: int, boundary: int) -> None:
        """Place all rows again, in a file of the right size, then switch to it with one store.

        Rows below ``boundary`` are placed first, so that none of them depends on a later one.
        """
        bits = _SMALLEST
        while rows + more > _LOAD * (1 << bits):
            bits += 1
        old = self._known
        fresh = ((old >> 8) + 1) << 8 | bits
        self._place.litter()
        segment = self._place.segment(self._name(fresh), "i4", slack=False, new=True)
        segment.ensure(1 << bits)
        places = segment.data[: 1 << bits]
        places.fill(_EMPTY)
        for low, high in ((0, min(boundary, rows)), (min(boundary, rows), rows)):
            for start in range(low, high, _CHUNK):
                stop = min(start + _CHUNK, high)
                homes = _shifted(batch.stored_hashes(start, stop), _LARGEST - bits)
                _place_all(places, homes, np.arange(start, stop, dtype=np.int32))
        self._words[self._word] = fresh
        # Only now: a count too high costs an early rebuild, one too low might fill the index.
        self._words[self._word + 1] = rows
        if old:
            self._place.drop(self._name(old))
        self._open()


def _shifted(hashes: Array, bits: int) -> Array:
    return np.right_shift(hashes, np.uint32(bits)).astype(np.intp)


def _place_all(places: Array, at: Array, rows: Array) -> None:
    """Put distinct keys at the first empty places of their paths."""
    step = 0
    mask = len(places) - 1
    while len(rows):
        free = (places.take(at) < 0).nonzero()[0]
        places[at[free]] = rows[free]
        step += 1
        left = places.take(at) != rows
        rows, at = rows[left], (at[left] + step) & mask


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise ArenaError(
            "A slot's table is full.",
            why=f"A slot can hold {MOST_ROWS:,} keys.",
            do="Raise the operator's parallelism.",
        )
