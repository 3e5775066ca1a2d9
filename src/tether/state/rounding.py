"""Backups with floats rounded to multiples of a power of two, so that they take fewer bytes.

What a recovery would find is then the rounded number: that is the durable copy, and the divergence,
which is the distance to it, counts what was rounded off from the moment it is written. So nothing that
rests on the divergence needs to know of it. Only floats are rounded, and only those that count in the
divergence: of all others nobody has said what an error of theirs would mean.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tether.core.numbers import STEP
from tether.state.arrow import raw, wrapped
from tether.state.rows import CHUNK, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from tether.state.durable import Choice, DurableCells
    from tether.state.segment import Array

_EXACT_BITS = 52


def rounded(values: Array, exponent: int) -> Array:
    """The multiples of ``2**exponent`` nearest to some floats.

    Example:
        >>> rounded(np.array([0.3, -0.1, 2.0**60, np.inf]), -1).tolist()
        [0.5, 0.0, 1.152921504606847e+18, inf]
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent) + 0.0  # no zeros below 0
    # Large ones are multiples already, and their number of steps might be no float.
    small = np.abs(values) < np.ldexp(1.0, _EXACT_BITS + exponent)
    return np.where(small, near, values)


def rounded_words(words: Array, steps: Mapping[int, int]) -> Array:
    """Stored words of rows, with some columns rounded.

    Args:
        words: One line per row.
        steps: By position of the column, the exponent of its step.
    """
    found = words.copy(order="K")
    for at, exponent in steps.items():
        column = np.ascontiguousarray(words[:, at]).view("f8")
        found[:, at] = rounded(column, exponent).view("i8")
    return found


def rounded_batch(batch: pa.RecordBatch, exponents: Mapping[str, int]) -> pa.RecordBatch:
    """An export's batch with some columns rounded; its schema says to what.

    Args:
        batch: Of exact numbers.
        exponents: Of the steps, by the column's name.
    """
    for name, exponent in exponents.items():
        at = batch.schema.get_field_index(name)
        told = {STEP: str(exponent).encode()}
        values = rounded(raw(batch.column(at), "f8"), exponent)
        batch = batch.set_column(at, batch.schema.field(at).with_metadata(told), wrapped(values))
    return batch


def rounded_choice(
    cells: DurableCells, choice: Choice, allowed: float, most: float
) -> tuple[Choice, dict[str, int]]:
    """What stays different if the chosen rows are written rounded, and the steps to round them to.

    Args:
        cells: The rows.
        choice: What is written.
        allowed: By how much rounding may take the state further from its backups. Every row of the state
            may use the same part of it, so that what earlier backups rounded is within it too.
        most: Largest divergence that may be left. It is measured; where rounding would leave more,
            nothing is rounded.
    """
    steps = cells.distance.steps(allowed, len(cells))
    if not steps or not len(choice.rows):
        return choice, {}
    off = [
        part_rows[(words != rounded_words(words, steps)).any(axis=1)]
        for part_rows, words in _parts(cells, choice.rows)
    ]
    changed = np.concatenate(off)
    remaining = np.concatenate([choice.remaining, changed])

    def pairs() -> Iterator[tuple[Array, Array]]:
        for _, words in _parts(cells, changed):
            yield words, rounded_words(words, steps)

    stay = (cells.sides(some) for _, some in pieces(choice.remaining))
    left = cells.distance.afresh(chain(stay, pairs()), narrow=cells.narrow(CHUNK))
    if not left.value() <= most:
        return choice, {}
    names = {column.at: name for name, column in cells.columns.items() if column.floating}
    found = choice._replace(remaining=remaining, left=left, steps=steps)
    return found, {names[at]: exponent for at, exponent in steps.items()}


def _parts(cells: DurableCells, rows: Array) -> Iterator[tuple[Array, Array]]:
    for _, some in pieces(rows):
        assert not isinstance(some, slice)
        yield some, cells.words(some)
