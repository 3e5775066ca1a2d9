"""Turning a batch of changes into new values per row, with every check before any write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tether.core.errors import BadValueError
from tether.state.header import PEAK
from tether.state.rows import Rows, count_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.cells import Cells
    from tether.state.columns import Column
    from tether.state.segment import Array

Operation = Literal["add", "put", "maximum", "minimum"]

_FITS = 1 << 63
_HALF = 0xFFFF_FFFF


@dataclass(frozen=True)
class Staged:
    """A change that is ready to be carried out: distinct rows with their old and new values."""

    rows: Rows
    old: list[Array]
    """All numbers, then all flags, of the rows as stored: what the journal keeps."""
    values: dict[int, tuple[Array, Array]]
    """For each numeric column: old and new values."""
    flags: dict[int, Array]
    """For each flag column: new values."""
    peak: int
    """Largest absolute integer among the new values."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return count_of(self.rows)


@dataclass(frozen=True)
class Groups:
    """How a batch with repeated rows falls into one group per row."""

    rows: Array
    order: Array
    starts: Array

    @classmethod
    def of(cls, rows: Array) -> Groups | None:
        """Group a batch by row; None if no row is repeated."""
        # Row and position in one integer: a plain sort is several times faster than an argsort.
        packed = rows << 32 | np.arange(len(rows))
        packed.sort()
        ordered = packed >> 32
        firsts = np.ones(len(rows), bool)
        np.not_equal(ordered[1:], ordered[:-1], out=firsts[1:])
        starts = np.flatnonzero(firsts)
        if len(starts) == len(rows):
            return None
        return cls(ordered[starts], packed & _HALF, starts)

    def reduce(self, column: Column, values: Array, operation: Operation) -> Array:
        """One value per row out of those given for it."""
        values = values[self.order]
        if operation == "put":
            ends = np.append(self.starts[1:], len(values)) - 1
            last: Array = values[ends]  # the sort keeps the batch's order within a row
            return last
        if operation == "maximum":
            return np.maximum.reduceat(values, self.starts)
        if operation == "minimum":
            return np.minimum.reduceat(values, self.starts)
        if not column.floating and _peak(values) * len(values) >= _FITS:
            return self._wide_sums(column, values)
        return np.add.reduceat(values, self.starts)

    def _wide_sums(self, column: Column, values: Array) -> Array:
        high = np.add.reduceat(values >> 32, self.starts)
        low = np.add.reduceat(values & _HALF, self.starts)
        high += low >> 32
        if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
            raise _overflow(column)
        result: Array = high << 32 | (low & _HALF)
        return result


def stage(
    cells: Cells,
    rows: Rows,
    given: Mapping[str, Array],
    operation: Operation,
    *,
    unique: bool,
) -> Staged:
    """Compute what a change would make of its rows, or raise before anything is changed.

    Args:
        cells: The rows.
        rows: Row of each item of the batch; a slice names each of its rows once.
        given: By column name: one value for each item.
        operation: What to do with the values.
        unique: Promise of the caller that no row is repeated.

    Raises:
        BadValueError: An integer would overflow, or infinities would add up to NaN.
    """
    groups = None if unique or isinstance(rows, slice) else Groups.of(rows)
    if groups is not None:
        rows = groups.rows
    words, flags = cells.words(rows), cells.flag_words(rows)
    changed: dict[int, tuple[Array, Array]] = {}
    changed_flags: dict[int, Array] = {}
    peak = 0
    for name, every in given.items():
        column = cells.columns[name]
        # What is added to a flag raises it: so one call can add numbers and note that it did.
        step: Operation = "maximum" if operation == "add" and column.flag else operation
        values = every if groups is None else groups.reduce(column, every, step)
        old = flags[:, column.at] if column.flag else words[:, column.at]
        old = old.view("f8") if column.floating else old
        new = _combine(column, old, values, step, cells.place.page.words[PEAK])
        if column.flag:
            changed_flags[column.at] = new
            continue
        changed[column.at] = (old, new)
        if not column.floating:
            peak = max(peak, min(_peak(new), _FITS - 1))
    kept = [part for part in (words, flags) if part.shape[1]]
    return Staged(rows, kept, changed, changed_flags, peak)


def _combine(column: Column, old: Array, values: Array, operation: Operation, peak: int) -> Array:
    if operation == "put":
        return values
    if operation == "maximum":
        return np.maximum(old, values)
    if operation == "minimum":
        return np.minimum(old, values)
    if column.floating:
        with np.errstate(invalid="ignore", over="ignore"):
            new = old + values
            if np.isnan(new.sum()) and np.isnan(new).any():
                raise BadValueError(
                    f"Column {column.name!r} would become NaN.",
                    why="Infinities of opposite sign were added.",
                    do="Keep infinite values out of sums.",
                )
        return new
    new = old + values
    # With both operands small enough no sum can wrap; only else look at every one of them.
    if peak + _peak(values) >= _FITS and (((old ^ new) & (values ^ new)) < 0).any():
        raise _overflow(column)
    return new


def total(values: Array) -> int:
    """The sum of 64-bit integers, whatever its size.

    Example:
        >>> total(np.array([2**63 - 1, 2**63 - 1]))
        18446744073709551614
    """
    if _peak(values) * len(values) < _FITS:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & _HALF).sum())


def _peak(values: Array) -> int:
    if not len(values):
        return 0
    return max(abs(int(values.min())), abs(int(values.max())))


def _overflow(column: Column) -> BadValueError:
    return BadValueError(
        f"Column {column.name!r} would overflow a 64-bit integer.",
        why="The sum is beyond ±9.2e18.",
        do="Declare the column float64, or add smaller units.",
    )
