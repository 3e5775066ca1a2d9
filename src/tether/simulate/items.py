"""Items on their way: runs of numbered items, and the messages that carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.state.segment import Array

KEY, AMOUNT = 0, 1
"""Rows of an array of items: what they touch, and by how much they change it."""
ITEM_BYTES = 16
"""Bytes of one item on the wire and in the store."""


class Run(NamedTuple):
    """Items that a receiver numbered one after the other.

    Example:
        >>> run = Run(first=5, items=np.array([[0, 1, 2], [9, 9, 7]]), name="a", number=1)
        >>> part = run.between(6, 99)
        >>> run.last, part.items.tolist(), part.number
        (7, [[1, 2], [9, 7]], 2)
    """

    first: int
    """The receiver's number of the first of them."""
    items: Array
    """Two rows: keys and amounts."""
    name: str
    """The name under which they came."""
    number: int
    """The number of the first of them under that name."""
    window_end: float | None = None
    """Set if this is a punctuation item, the end of a window: one item that touches nothing."""

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return int(self.first + self.items.shape[1] - 1)

    def between(self, first: int, last: int) -> Run:
        """Those of them with numbers from ``first`` to ``last``, both included."""
        start, stop = max(0, first - self.first), last + 1 - self.first
        return self._replace(
            first=self.first + start, items=self.items[:, start:stop], number=self.number + start
        )


def cut(runs: Iterable[Run], first: int, last: int) -> list[Run]:
    """What lies between two numbers, both included."""
    return [run.between(first, last) for run in runs if run.first <= last and run.last >= first]


def count(runs: Iterable[Run]) -> int:
    """How many items, punctuation left out."""
    return sum(run.items.shape[1] for run in runs if run.window_end is None)


class Message(NamedTuple):
    """What a sender sends at once."""

    name: str
    """The source that they go back to. What a slot sends on keeps the name, and is numbered after
    what was put in, so that an item processed again gives outputs that are known as the same."""
    first: int
    """Number of the first item under that name, from 1."""
    items: Array
    upto: int
    """Number of the last item in the sender's own count, by which it is acknowledged."""
    window_end: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return ITEM_BYTES * int(self.items.shape[1])


def mark() -> Array:
    """A punctuation item: it touches no key and changes nothing."""
    return np.array([[-1], [0]], np.int64)


def outputs(items: np.ndarray, keys: int, each: int) -> np.ndarray:
    """What an operator sends on: ``each`` items for an item, to other keys, of the same amount."""
    if each == 1:
        return np.stack([(items[KEY] * 7 + 3) % keys, items[AMOUNT]])
    keyed = (np.repeat(items[KEY], each) * 7 + 3 + np.tile(np.arange(each), items.shape[1])) % keys
    return np.stack([keyed, np.repeat(items[AMOUNT], each)])
