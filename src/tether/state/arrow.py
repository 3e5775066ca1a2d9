"""Converts between NumPy and Arrow arrays by their buffers, without a copy.

``pa.array``, ``pa.scalar`` and ``to_numpy`` first import pandas where it is installed. That takes a
second in every new worker process. Using the buffers avoids it, and is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tether.state.segment import Array


def wrapped(values: Array, kind: pa.DataType | None = None, valid: Array | None = None) -> Any:
    """An Arrow array over the memory of a NumPy array of fixed-width items.

    Args:
        values: The items.
        kind: Arrow type with the same bits; the one of the NumPy type if not given.
        valid: Which items are not null; None for all.

    Example:
        >>> wrapped(np.array([1, 2]), valid=np.array([True, False])).to_pylist()
        [1, None]
    """
    if kind is None:
        kind = pa.from_numpy_dtype(values.dtype)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), data])


def byte_strings(data: Array | bytes, offsets: Array, valid: Array | None = None) -> Any:
    """An Arrow large_binary array over bytes and the bounds of each string in them.

    Example:
        >>> byte_strings(b"tobe", np.array([0, 2, 4])).to_pylist()
        [b'to', b'be']
    """
    buffers = [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def booleans(values: Array) -> Any:
    """An Arrow array of booleans."""
    return pa.Array.from_buffers(
        pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
    )


def numpy_type(kind: pa.DataType) -> str:
    """The NumPy type of the items of an Arrow type of integers or floats."""
    sort = "f" if pa.types.is_floating(kind) else "i"
    return f"{'u' if pa.types.is_unsigned_integer(kind) else sort}{kind.bit_width // 8}"


def mask_of(array: Any) -> Array:
    """The items of an Arrow array of booleans without nulls."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(
        bool
    )


def raw(array: Any, dtype: str) -> Array:
    """The items of an Arrow array of fixed-width values, as they lie in memory; nulls are anything."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def _bitmap(valid: Array | None) -> Any:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
