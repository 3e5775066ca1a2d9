"""Value columns: their types, and turning a user's values into arrays of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError
from tether.state.arrow import mask_of, numpy_type, raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.segment import Array

_KINDS = ("int64", "float64", "uint8")
_RESERVED = ("keys", "unique", "index")
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Column:
    """One value column of a primitive.

    ``int64`` and ``float64`` columns are tracked: they have durable copies and count in the
    divergence. ``uint8`` columns are flags: kept, journaled and backed up with their row, but not
    compared; adding to a flag raises it to at least that value.
    """

    name: str
    kind: str
    at: int
    """Position among the columns of its sort: numeric ones, or flags."""
    start: float = 0
    """Its value for a key that was never seen."""
    declared: bool = False
    """Whether the start was given by the user."""

    @property
    def flag(self) -> bool:
        """Whether it is an untracked flag."""
        return self.kind == "uint8"

    @property
    def floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.kind == "float64"


def parse_columns(
    values: Mapping[str, str], starts: Mapping[str, str] | None = None
) -> tuple[Column, ...]:
    """Check and number the value columns.

    Args:
        values: Type of each column.
        starts: What columns hold for a key that was never seen, as ``plan_starts`` gives it.

    Example:
        >>> [column.at for column in parse_columns({"n": "int64", "seen": "uint8"})]
        [0, 0]

    Raises:
        BadValueError: A type is not one of int64, float64, uint8, or a name cannot be used.
    """
    given = starts or {}
    columns: list[Column] = []
    for name, kind in values.items():
        if kind not in _KINDS:
            raise BadValueError(
                f"Column {name!r} has the type {kind!r}.",
                why="State columns are 64-bit numbers or uint8 flags.",
                do=f"Use one of {', '.join(_KINDS)}.",
            )
        if not name or name in _RESERVED:
            raise BadValueError(
                f"A value column cannot be named {name!r}.",
                why="The name is used by the state itself.",
                do="Choose another name.",
            )
        at = sum((other.kind == "uint8") == (kind == "uint8") for other in columns)
        text = given.get(name, "0")
        start = float(text) if kind == "float64" else int(text)
        columns.append(Column(name, kind, at, start, declared=name in given))
    return tuple(columns)


def as_values(column: Column, values: Any, length: int) -> Array:
    """A user's values as an array of the column's type and of the given length.

    Args:
        column: The column that they are for.
        values: Arrow array, NumPy array, sequence, or one number for all rows.
        length: Number of rows.

    Raises:
        BadValueError: Wrong length, nulls, NaN, or numbers that do not fit the type.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        if values.null_count:
            raise _unusable(column, "there are nulls among them", "Fill or drop nulls first.")
        values = plain(values)
    array = np.asarray(values)
    if array.ndim == 0:
        array = np.broadcast_to(array, (length,))
    if array.shape != (length,):
        raise _unusable(
            column, f"their shape is {array.shape}, for {length} rows", "Give one value a row."
        )
    if not length:
        return np.zeros(0, column.kind)  # an empty sequence has no type of its own
    return _converted(column, array)


def plain(values: Any) -> Array:
    """The items of an Arrow array without nulls."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if pa.types.is_boolean(kind):
        return mask_of(values)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return raw(values, numpy_type(kind))
    result: Array = values.to_numpy(zero_copy_only=False)  # refused later, by its type
    return result


def _converted(column: Column, array: Array) -> Array:
    kind = array.dtype.kind
    if column.floating:
        if kind not in "fiub":
            raise _unusable(column, f"they are of type {array.dtype}", "Give numbers.")
        array = array.astype(np.float64, copy=False)
        # A sum is one fast pass and is NaN if any item is (or if opposite infinities meet).
        if np.isnan(_quiet_sum(array)) and np.isnan(array).any():
            raise _unusable(
                column,
                "there are NaN among them, of which a number could never get rid again.",
                "Replace or drop them first: Stream.set_aside keeps such rows for you, and "
                "KeyedAggregate(not_numbers='skip') counts them.",
            )
        return array
    if kind not in "iub":
        raise _unusable(column, f"they are of type {array.dtype}", "Round to integers first.")
    if array.dtype.itemsize == 8 and kind == "u" and int(array.max()) > _LARGEST:
        raise _unusable(column, "some exceed the largest int64", "Use float64, or scale them.")
    if column.flag:
        if int(array.min()) < 0 or int(array.max()) > 255:
            raise _unusable(column, "some do not fit 8 bits", "Give values from 0 to 255.")
        return array.astype(np.uint8, copy=False)
    return array.astype(np.int64, copy=False)


def _quiet_sum(array: Array) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(array.sum())


def _unusable(column: Column, why: str, do: str) -> BadValueError:
    return BadValueError(
        f"The values for column {column.name!r} ({column.kind}) cannot be used.", why=why, do=do
    )
