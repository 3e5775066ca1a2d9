"""What columns hold for keys that were never seen: what all changes of a new key begin from.

A state with a start for every key is a function of all keys, seen or not; and then adding, setting,
and taking a maximum or minimum never make two states differ more than they did. This is why an error
that a loss left behind does not grow: it matters where a lost key starts again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.state.columns import Column

_LARGEST = (1 << 63) - 1
_RANGES: dict[str, tuple[float, float]] = {
    "int64": (-_LARGEST - 1, _LARGEST),
    "float64": (-math.inf, math.inf),
    "uint8": (0, 255),
}


class Starts:
    """The starts of some columns as they are stored.

    Args:
        columns: Value columns.
        sides: How often the numbers of a row are stored, side by side.
    """

    def __init__(self, columns: Sequence[Column], sides: int) -> None:
        numeric = [column for column in columns if not column.flag]
        given = [np.array([c.start], "f8" if c.floating else "i8").view("i8") for c in numeric]
        self.words = np.concatenate([np.zeros(0, np.int64), *given])
        """One row's numbers."""
        # One number is stored faster than a line of them.
        self.line = np.tile(self.words, sides) if self.words.any() else 0
        """What to fill new rows' numbers with."""
        self.flags = np.array([column.start for column in columns if column.flag], np.uint8)
        """One row's flags."""
        whole = [abs(int(column.start)) for column in numeric if not column.floating]
        self.peak = min(max(whole, default=0), _LARGEST)
        """Largest absolute integer among them."""


def plan_starts(columns: Sequence[Column], starts: Mapping[str, float] | None) -> dict[str, str]:
    """Check what columns are to start from, and give it in the form that is stored.

    Texts, because JSON has no infinity. For whole numbers an infinity stands for the largest, or
    smallest, that the column can hold.

    Example:
        >>> from tether.state.columns import parse_columns
        >>> plan_starts(parse_columns({"n": "int64", "x": "float64"}), {"n": -math.inf, "x": 2})
        {'n': '-9223372036854775808', 'x': '2.0'}

    Raises:
        BadValueError: There is no such column, or its type cannot hold the number.
    """
    kinds = {column.name: column for column in columns}
    planned = {}
    for name, start in (starts or {}).items():
        if name not in kinds:
            raise BadValueError(
                f"There is no column {name!r} to start from {start!r}.",
                do=f"Name columns out of {', '.join(kinds) or '(none)'}.",
            )
        lowest, highest = _RANGES[kinds[name].kind]
        if math.isnan(start) or not (math.isinf(start) or lowest <= start <= highest):
            raise _bad_start(kinds[name], start)
        if kinds[name].floating:
            planned[name] = repr(float(start))
            continue
        bounded = min(max(start, lowest), highest)
        if bounded != int(bounded):
            raise _bad_start(kinds[name], start)
        planned[name] = str(int(bounded))
    return planned


def _bad_start(column: Column, start: float) -> BadValueError:
    return BadValueError(
        f"Column {column.name!r} ({column.kind}) cannot start from {start!r}.",
        why="Its type cannot hold that number.",
        do="Give a number of the column's type, or an infinity for the largest or smallest one.",
    )
