"""The entries of an export that is still being written, kept in the arena until it is durable.

A backup written in the background is of the state as it was when the backup began. By the time it
is durable the state has moved on, so what was written has to be remembered beside the live values:
these become the durable copy when the export is settled. Every export has a list of its own, whose
name is never used again: a rollback finds the elder one whole, and no process takes one for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.state.header import (
    ALL_ENTRIES,
    GENERATION,
    LISTS,
    NO_PART,
    PENDING_COUNT,
    PENDING_GENERATION,
    PENDING_KEYS,
    PENDING_LIST,
    PENDING_PART,
    SOME_ENTRIES,
)

if TYPE_CHECKING:
    from tether.state.place import Place
    from tether.state.segment import Array, Segment


class Held(NamedTuple):
    """What an export took out: rows with their numbers and flags at that time."""

    rows: Array
    words: Array
    flags: Array


class PendingRows:
    """Rows of one primitive that are being written.

    Args:
        place: Where the primitive lives.
        width: Numbers per row.
        flags: Flags per row.
    """

    def __init__(self, place: Place, width: int, flags: int) -> None:
        self._place, self._width, self._flags = place, width, flags
        self._lists: dict[int, Segment] = {}
        self.refresh()

    @property
    def part(self) -> int:
        """Whether nothing, some entries or all entries are being written."""
        return int(self._place.page.words[PENDING_PART])

    @property
    def current(self) -> bool:
        """Whether rows are being written that still have the same numbers: no clear since."""
        words = self._place.page.words
        return bool(words[PENDING_PART] and words[PENDING_GENERATION] == words[GENERATION])

    def hold(self, held: Held, *, full: bool, new_keys: int) -> None:
        """Remember what an export took out."""
        words = self._place.page.words
        which = words[LISTS] = words[LISTS] + 1
        segment = self._open(which, new=True)
        count, width = len(held.rows), self._width
        segment.ensure(count)
        segment.data[:count, 0] = held.rows
        segment.data[:count, 1 : 1 + width] = held.words
        segment.data[:count, 1 + width :] = held.flags
        words[PENDING_LIST], words[PENDING_COUNT] = which, count
        words[PENDING_GENERATION] = words[GENERATION]
        words[PENDING_KEYS] = new_keys
        words[PENDING_PART] = ALL_ENTRIES if full else SOME_ENTRIES

    def held(self) -> Held:
        """The content that is being written."""
        words = self._place.page.words
        data = self._open(words[PENDING_LIST]).data[: words[PENDING_COUNT]]
        rows, width = data[:, 0].astype(np.intp), self._width
        numbers = np.ascontiguousarray(data[:, 1 : 1 + width])
        return Held(rows, numbers, data[:, 1 + width :].astype(np.uint8))

    def drop(self) -> None:
        """Nothing is being written any more."""
        words = self._place.page.words
        self._place.litter()  # so that the next process that begins an epoch removes the file
        words[PENDING_PART] = NO_PART
        words[PENDING_COUNT] = 0

    def begin(self) -> None:
        """Remove lists that a rollback no longer needs."""
        words = self._place.page.words
        for which in list(self._lists):
            if not words[PENDING_PART] or which != words[PENDING_LIST]:
                del self._lists[which]
                self._place.drop(_name(which))
        self.refresh()

    def refresh(self) -> None:
        """Open what another process holds, so that its file counts as one in use."""
        words = self._place.page.words
        if words[PENDING_PART]:
            self._open(words[PENDING_LIST])

    def _open(self, which: int, *, new: bool = False) -> Segment:
        if which not in self._lists:
            if new:
                self._place.litter()
            name, width = _name(which), 1 + self._width + self._flags
            self._lists[which] = self._place.segment(name, "i8", width, new=new)
        return self._lists[which]


def _name(which: int) -> str:
    return f"pending.{which}"
