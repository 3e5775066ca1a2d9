"""Reading and writing chosen rows of a segment, by whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.state.segment import Array, Segment

CHUNK = 1 << 19
"""Rows looked at together: bounds the temporary memory of a scan."""


Rows = Union["Array", slice]
"""Row numbers, or all rows from a first to a last: that spares looking each of them up."""


def count_of(rows: Rows) -> int:
    """How many rows these are."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def gather(segment: Segment | None, rows: Rows, dtype: str = "i8") -> Array:
    """A copy of some rows, one line per row, in memory column by column."""
    if segment is None:
        return np.empty((count_of(rows), 0), dtype)
    data = segment.data
    if isinstance(rows, slice):
        return np.array(data[rows].T, order="C").T
    if data.shape[1] == 1:  # one-dimensional access is a third faster
        return data.reshape(-1).take(rows).reshape(-1, 1)
    if data.shape[1] == 2 and data.itemsize == 8:  # both words of a row by one access
        taken = data.view(np.complex128).reshape(-1).take(rows)
        lines = taken.view(data.dtype).reshape(-1, 2)
    else:
        lines = data.take(rows, axis=0)
    return np.ascontiguousarray(lines.T).T


def gather_side(segment: Segment | None, rows: Rows, side: int, sides: int) -> Array:
    """Like ``gather``, of one of the equal sides that each row is made of."""
    if segment is None:
        return np.empty((count_of(rows), 0), "i8")
    if sides == 1:
        return gather(segment, rows)
    data = segment.data
    width = data.shape[1] // sides
    if isinstance(rows, slice):
        return np.array(data[rows, side * width : (side + 1) * width].T, order="C").T
    lines = np.empty((width, len(rows)), data.dtype)
    for column in range(width):
        # By indexing, not by take: of a strided view that would copy every row there is.
        lines[column] = data[:, side * width + column][rows]
    return lines.T


def assign(segment: Segment, rows: Rows, words: Array, at: int = 0) -> None:
    """Overwrite some rows, from column ``at`` on."""
    for column in range(words.shape[1]):
        segment.data[:, at + column][rows] = words[:, column]


def scatter(data: Array, at: int, rows: Rows, values: Array) -> None:
    """Overwrite one column of some rows."""
    view = data.reshape(-1) if data.shape[1] == 1 else data[:, at]
    view[rows] = values.view(data.dtype)


def numbers_of(rows: Rows) -> Array:
    """The rows one by one."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def pieces(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """Parts of many rows: where each part lies among them, and which rows it has.

    Example:
        >>> [(part, some) for part, some in pieces(slice(0, 3))]
        [(slice(0, 524288, None), slice(0, 3, None))]
    """
    for start in range(0, count_of(rows), CHUNK):
        part = slice(start, start + CHUNK)
        if isinstance(rows, slice):
            yield part, slice(rows.start + start, min(rows.start + start + CHUNK, rows.stop))
        else:
            yield part, rows[part]
