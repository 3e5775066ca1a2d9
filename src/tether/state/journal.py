"""The undo log of one epoch: the values of rows before their first change in it.

The guarantee depends only on the order of steps. An entry is complete in memory, then the count that
makes it part of the log is stored, and only then may the caller overwrite the value it guards. So a kill
between any two instructions leaves a log that covers every value which may have changed. Undoing only
copies from the log into the state; doing it twice, or again after a kill half-way, gives the same
result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.state.place import trim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.state.place import Place
    from tether.state.segment import Array


class UndoLog:
    """Row numbers and old values, append-only until the next epoch begins.

    Args:
        place: Where the primitive lives.
        name: Prefix of the log's segments. The log is not bound to a generation of the state.
        count_word: Physical word of the primitive's page that holds the number of entries.
        columns: NumPy type and width of each thing remembered per row.
    """

    def __init__(
        self, place: Place, name: str, count_word: int, columns: Sequence[tuple[str, int]]
    ) -> None:
        self._words = place.page.words
        self._count_word = count_word
        self._rows = place.segment(f"{name}.rows", "i4")
        self._columns = [
            place.segment(f"{name}.{number}", dtype, width)
            for number, (dtype, width) in enumerate(columns)
        ]

    def append(self, rows: Array, *columns: Array) -> None:
        """Remember what ``rows`` hold now. Returns before anything may be overwritten."""
        start = self._words[self._count_word]
        stop = start + len(rows)
        for segment, values in zip((self._rows, *self._columns), (rows, *columns), strict=True):
            segment.ensure(stop)
            segment.data[start:stop] = values
        self._words[self._count_word] = stop

    def entries(self) -> tuple[Array, ...]:
        """All rows and their old values, the *latest* entry first.

        If a row was entered twice, plain assignment of these leaves its earliest value, which is
        the one from before the epoch.
        """
        count = self._words[self._count_word]
        return tuple(s.data[:count][::-1] for s in (self._rows, *self._columns))

    def rows(self) -> Array:
        """Rows in the order of entry."""
        return self._rows.data[: self._words[self._count_word]]

    def bytes(self) -> int:
        """Memory that the entries take."""
        count = self._words[self._count_word]
        return sum(int(s.data[:count].nbytes) for s in (self._rows, *self._columns))

    def begin(self) -> None:
        """Forget the previous epoch; memory that one large epoch needed is given back."""
        used = self._words[self._count_word]
        self._words[self._count_word] = 0
        for segment in (self._rows, *self._columns):
            trim(segment, used)
