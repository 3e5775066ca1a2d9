"""Reading and writing chosen rows of a segment, by whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.state.segment import Array, Segment

CHUNK = 1 << 19
"""Rows looked at together: bounds the temporary memory of a scan."""


def gather(segment: Segment | None, rows: Array, dtype: str = "i8") -> Array:
    """A copy of some rows, one line per row."""
    if segment is None:
        return np.empty((len(rows), 0), dtype)
    data = segment.data
    if data.shape[1] == 1:  # one-dimensional access is a third faster
        return data.reshape(-1).take(rows).reshape(-1, 1)
    return data.take(rows, axis=0)


def assign(segment: Segment, rows: Array, words: Array) -> None:
    """Overwrite some rows."""
    if words.shape[1] == 1:
        segment.data.reshape(-1)[rows] = words[:, 0]
    else:
        segment.data[rows] = words


def scatter(data: Array, at: int, rows: Array, values: Array) -> None:
    """Overwrite one column of some rows."""
    view = data.reshape(-1) if data.shape[1] == 1 else data[:, at]
    view[rows] = values.view(data.dtype)


def chunks(length: int) -> Iterator[slice]:
    """Parts of a long array, in order."""
    return (slice(start, start + CHUNK) for start in range(0, length, CHUNK))
