"""A column of a batch as a NumPy array: chunks, nulls, times and decimals included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_numpy(column: Any, *, null: Any = None) -> NDArray[Any]:
    """A column of a batch or table as one NumPy array.

    Numbers keep their type, booleans become ``bool``, dates and times ``datetime64`` in UTC,
    decimals ``float64``, and all else (text, lists) an array of Python objects.

    Args:
        column: ``batch["amount"]``: an Arrow array, in chunks or not.
        null: What stands for a null. Without it a column that has nulls is refused, for there is no
            number that would be right in every program.

    Raises:
        BadValueError: There are nulls and nothing was given for them, or it does not fit the type.

    Example:
        >>> batch = pa.table({"amount": pa.chunked_array([[1, None], [3]])})
        >>> to_numpy(batch["amount"], null=0)
        array([1, 0, 3])
        >>> to_numpy(batch["amount"])
        Traceback (most recent call last):
        tether.core.errors.BadValueError: The column has nulls: 1 in 3 rows. Why: ...
    """
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        raise BadValueError(
            f"to_numpy() was given a {type(column).__name__}.",
            do='Give a column of a batch: to_numpy(batch["amount"]).',
        )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        column = _filled(column, null)
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))  # NumPy has no zones; Arrow's numbers are UTC
    result: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
    return result


def _filled(column: pa.Array, null: Any) -> pa.Array:
    if null is None:
        raise BadValueError(
            f"The column has nulls: {column.null_count} in {len(column)} rows.",
            why="NumPy has no nulls, and no number would be right for them in every program.",
            do="Pass null=… with what is to stand for them, or drop those rows first with "
            "column.drop_null() or batch.filter(column.is_valid()).",
        )
    try:
        return pc.fill_null(column, pa.scalar(null, column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
        raise BadValueError(
            f"null={null!r} cannot stand for a null in a column of {column.type}.",
            why=str(error),
            do="Give a value of the column's own type, or cast the column first.",
        ) from error
