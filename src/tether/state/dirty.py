"""The rows that may differ from the backups, in two lists used in turn.

Rows are appended when they first differ; a backup writes the list of those that still do. Writing
that list over the old one would make a rollback impossible, so it goes to the other list: the one
from the start of the epoch is never overwritten, only appended to behind its saved length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.state.header import DIRTY_COUNT, DIRTY_LIST
from tether.state.place import trim

if TYPE_CHECKING:
    from tether.state.place import Place
    from tether.state.segment import Array


class DirtyRows:
    """Row numbers of one primitive that may differ from its backups; no row is listed twice."""

    def __init__(self, place: Place, prefix: str) -> None:
        self._page = place.page
        self._lists = [place.segment(f"{prefix}dirty{which}", "i4") for which in (0, 1)]

    def __len__(self) -> int:
        return int(self._page.words[DIRTY_COUNT])

    def rows(self) -> Array:
        """All listed rows, ready for indexing."""
        words = self._page.words
        return self._lists[words[DIRTY_LIST]].data[: words[DIRTY_COUNT]].astype(np.intp)

    def rows_at_begin(self) -> Array:
        """Rows that were listed when the epoch began."""
        which, count = self._page.saved(DIRTY_LIST), self._page.saved(DIRTY_COUNT)
        return self._lists[which].data[:count].astype(np.intp)

    def append(self, rows: Array) -> None:
        """List rows that are not listed yet."""
        words = self._page.words
        start = words[DIRTY_COUNT]
        segment = self._lists[words[DIRTY_LIST]]
        segment.ensure(start + len(rows))
        segment.data[start : start + len(rows)] = rows
        words[DIRTY_COUNT] = start + len(rows)

    def replace(self, rows: Array) -> None:
        """List exactly these rows from now on."""
        other = 1 - self._page.saved(DIRTY_LIST)
        segment = self._lists[other]
        segment.ensure(len(rows))
        segment.data[: len(rows)] = rows
        self._page.words[DIRTY_LIST] = other
        self._page.words[DIRTY_COUNT] = len(rows)

    def begin(self) -> None:
        """Give the memory of the list that is no longer needed back."""
        words = self._page.words
        trim(self._lists[1 - words[DIRTY_LIST]], 0)
        trim(self._lists[words[DIRTY_LIST]], words[DIRTY_COUNT])
