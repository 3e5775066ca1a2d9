"""Canonical form of the single fields of a key, by Arrow type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError
from tether.state.arrow import byte_strings, mask_of, numpy_type, raw, wrapped

if TYPE_CHECKING:
    from tether.state.segment import Array

BYTES = "bytes"


@dataclass(frozen=True)
class BytesPart:
    """Byte strings of a batch of keys."""

    array: Any
    """The same as an Arrow large_binary array without nulls."""
    data: Array
    offsets: Array

    @classmethod
    def of(cls, array: Any) -> BytesPart:
        """Wrap an Arrow array of strings or binaries without nulls; copies at most its offsets."""
        array = array.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        if not len(bounds):  # Arrow may leave the offsets of an empty array out
            bounds = np.zeros(1, np.int64)
        return cls(array, np.frombuffer(data or b"", np.uint8), bounds)


@dataclass(frozen=True)
class Canonical:
    """Keys of a batch in canonical form."""

    count: int
    parts: list[Array | BytesPart]
    nulls: Array | None
    """One bit per field of each key, set where it is null; None if there are no nulls."""


class Leaf(Protocol):
    """A field type that is not a struct."""

    parts: list[str]
    """NumPy types of its parts, or "bytes"."""

    def encode(self, array: Any) -> list[Array | BytesPart]:
        """Canonical parts; nulls become zeros or empty strings."""

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        """The Arrow array again."""


def leaf_of(kind: pa.DataType, name: str) -> Leaf:
    """The leaf for an Arrow type.

    Raises:
        BadValueError: Values of this type cannot be keys.
    """
    types = pa.types
    if types.is_boolean(kind):
        return _Boolean()
    if types.is_floating(kind):
        return _Float(kind)
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return _Wide(kind)
    if _is_text(kind) or types.is_fixed_size_binary(kind):
        return _Bytes(kind)
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_decimal(kind):
        if kind.bit_width in (8, 16, 32, 64):
            return _Fixed(kind)
        if kind.bit_width == 128:
            return _Wide(kind)
    raise BadValueError(
        f"Key column {name!r} has the type {kind}, which cannot be a key.",
        why="Keys are made of integers, booleans, floats, dates, times, decimals, strings, "
        "binaries, and structs or lists of those.",
        do="Convert the column to one of these.",
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


class _Fixed:
    """Integers and everything stored as one: dates, timestamps, durations, small decimals."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._dtype = numpy_type(kind)
        self.parts = [self._dtype]

    def encode(self, array: Any) -> list[Array | BytesPart]:
        return [_filled(array, raw(array, self._dtype))]

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        del count
        return wrapped(parts[0], self._type, valid)


class _Float:
    """Floats by their bits, with one NaN and one zero."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._size = kind.bit_width // 8
        self.parts = [f"i{self._size}"]

    def encode(self, array: Any) -> list[Array | BytesPart]:
        values = _filled(array, raw(array, f"f{self._size}")) + 0.0  # makes -0.0 0.0, and copies
        values[np.isnan(values)] = np.nan
        return [values.view(self.parts[0])]

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        del count
        return wrapped(parts[0], self._type, valid)


class _Boolean:
    parts: list[str]

    def __init__(self) -> None:
        self.parts = ["u1"]

    def encode(self, array: Any) -> list[Array | BytesPart]:
        numbers = array.cast(pa.uint8())
        return [_filled(numbers, raw(numbers, "u1"))]

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        del count
        return wrapped(parts[0], pa.uint8(), valid).cast(pa.bool_())


class _Wide:
    """128- and 256-bit values as two or four words."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._words = kind.bit_width // 64
        self.parts = ["i8"] * self._words

    def encode(self, array: Any) -> list[Array | BytesPart]:
        words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, self._words)
        words = words[array.offset : array.offset + len(array)]
        return [_filled(array, words[:, at]) for at in range(self._words)]

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        words = np.stack(parts, axis=1) if count else np.zeros((0, self._words), np.int64)
        return wrapped(words, self._type, valid)


class _Bytes:
    """Strings and binaries of any width."""

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self.parts = [BYTES]

    def encode(self, array: Any) -> list[Array | BytesPart]:
        if pa.types.is_fixed_size_binary(self._type):
            array = array.cast(pa.binary())
        if not array.null_count:
            return [BytesPart.of(array)]
        # What lies behind a null may be anything; here it becomes an empty string.
        valid = mask_of(array.is_valid())
        present = BytesPart.of(array.cast(pa.large_binary()).drop_null())
        lengths = np.zeros(len(array) + 1, np.int64)
        lengths[0] = present.offsets[0]
        lengths[1:][valid] = np.diff(present.offsets)
        return [BytesPart.of(byte_strings(present.data, np.cumsum(lengths)))]

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        del count
        array = byte_strings(parts[0].data, parts[0].offsets, valid)
        if pa.types.is_fixed_size_binary(self._type):
            return array.cast(pa.binary()).cast(self._type)
        return array.cast(self._type)


def _filled(array: Any, values: Array) -> Array:
    if not array.null_count:
        return values
    return np.where(mask_of(array.is_valid()), values, values.dtype.type(0))
