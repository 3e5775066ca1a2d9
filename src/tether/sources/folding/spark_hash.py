"""Spark's ``hash()`` of whole columns, without Spark: Murmur3 with 32 bits, seed 42, column by column.

Keys of a stored state are found again by it, also where no session runs. Tests compare it with
Spark's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Words = NDArray[np.uint32]

_SEED = 42
_KINDS = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.date32(): "date",
}
"""Spark's names of types whose values it hashes as they are."""
_FIRST, _SECOND = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_INTS = {"boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32()}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}
_BYTES = {"string": pa.large_string(), "binary": pa.large_binary()}
_LONGEST = 1 << 12
"""Bytes that are hashed column-wise; a key that is longer is left to Spark."""


def slots_of(
    keys: pa.RecordBatch, types: Mapping[str, str], slots: int
) -> NDArray[np.int64] | None:
    """The slot of each key, as ``pmod(hash(key), slots)``; None where only Spark can tell.

    Args:
        keys: The key columns.
        types: Spark's types of these columns, in the order in which they are hashed.
        slots: The number of slots.

    Example:
        >>> batch = pa.RecordBatch.from_pydict({"word": ["to", "be", None]})
        >>> slots_of(batch, {"word": "string"}, 4).tolist()
        [0, 0, 2]
    """
    found = np.full(len(keys), _SEED, np.uint32)
    for name, kind in types.items():
        after = _hashed(keys.column(name), kind, found)
        if after is None:
            return None
        found = after
    signed: NDArray[np.int64] = found.view(np.int32).astype(np.int64)
    return np.mod(signed, slots)


def kind_of(kind: pa.DataType) -> str | None:
    """Spark's name of a key's type, if equal keys of it are equal bytes; None of others."""
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return _KINDS.get(kind)


def _hashed(column: pa.Array, kind: str, seeds: Words) -> Words | None:
    if kind in _BYTES:
        mixed = _of_bytes(column.cast(_BYTES[kind]), seeds)
    else:
        mixed = _of_numbers(column, kind, seeds)
    if mixed is None or not column.null_count:
        return mixed
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, mixed, seeds)  # a null leaves the hash as it is


def _of_numbers(column: pa.Array, kind: str, seeds: Words) -> Words | None:
    values = _numbers(column, kind)
    if values is None:
        return None
    if values.itemsize == 4:
        return _of_int(values.view(np.uint32), seeds)
    return _of_long(values.view(np.uint64), seeds)


def _numbers(column: pa.Array, kind: str) -> NDArray[Any] | None:
    """The numbers that are hashed, 32 or 64 bits wide, with a zero in the place of each null."""
    if kind in _FLOATS:
        # Negative zero is zero, and every NaN is the same one.
        floats = _plain(column.cast(_FLOATS[kind])) + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats
    if kind == "date":
        return _plain(column.cast(pa.date32()).view(pa.int32()))
    if kind in _INTS:
        return _plain(column.cast(_INTS[kind]).cast(pa.int32()))
    if kind == "bigint":
        return _plain(column.cast(pa.int64()))
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    wanted = {"timestamp": zoned, "timestamp_ntz": not zoned}
    if not wanted.get(kind, False):
        return None  # of another type, or it depends on the session's zone
    micros = pa.timestamp("us", "UTC" if zoned else None)
    return _plain(column.cast(micros).view(pa.int64()))


def _plain(column: pa.Array) -> NDArray[Any]:
    filled = column.fill_null(pa.scalar(0, column.type)) if column.null_count else column
    return np.array(filled.to_numpy(zero_copy_only=False))


def _of_int(words: Words, seeds: Words) -> Words:
    return _end(_mix(seeds, words), np.uint32(4))


def _of_long(values: NDArray[np.uint64], seeds: Words) -> Words:
    low = values.astype(np.uint32)
    high = (values >> np.uint64(32)).astype(np.uint32)
    return _end(_mix(_mix(seeds, low), high), np.uint32(8))


def _of_bytes(column: pa.Array, seeds: Words) -> Words | None:
    """Four bytes of all keys at a time; then what is left of each, byte by byte."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.where(valid, lengths, 0)
    if not len(lengths) or int(lengths.max()) > _LONGEST:
        return None if len(lengths) else seeds
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    first, last = int(ends[0]), int(ends[-1])
    padded = np.zeros(last - first + 4, np.uint8)
    padded[: last - first] = whole[first:last]
    words = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))
    at, found = ends[:-1] - first, seeds.copy()
    aligned = lengths - lengths % 4
    for done in range(0, int(aligned.max()), 4):
        todo = (aligned > done).nonzero()[0]
        found[todo] = _mix(found[todo], words[at[todo] + done].astype(np.uint32))
    for more in range(3):
        todo = (lengths - aligned > more).nonzero()[0]
        tail = padded[(at + aligned)[todo] + more].view(np.int8)  # signed, as in Java
        found[todo] = _mix(found[todo], tail.astype(np.int32).view(np.uint32))
    return _end(found, lengths.astype(np.uint32))


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _mix(found: Words, words: Words) -> Words:
    turned: Words = _turned(words * _FIRST, 15) * _SECOND
    mixed: Words = _turned(found ^ turned, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _end(found: Words, length: Words | np.uint32) -> Words:
    found = found ^ length
    found ^= found >> np.uint32(16)
    found = found * np.uint32(0x85EBCA6B)
    found ^= found >> np.uint32(13)
    found = found * np.uint32(0xC2B2AE35)
    found ^= found >> np.uint32(16)
    return found
