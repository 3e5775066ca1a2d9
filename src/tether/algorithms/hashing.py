"""64-bit hashes of key columns, the same in every process, without a loop over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xA24BAED4963EE407)


def mixed(words: Hashes, seed: int) -> Hashes:
    """Scramble 64-bit words, so that every output bit depends on every input bit."""
    result = words ^ np.uint64(seed & (1 << 64) - 1)
    result ^= result >> np.uint64(30)
    result *= _FIRST
    result ^= result >> np.uint64(27)
    result *= _SECOND
    result ^= result >> np.uint64(31)
    return result


def hash_columns(rows: pa.RecordBatch, names: Sequence[str], seed: int) -> Hashes:
    """One hash for each row, of some of its columns; null is a value like any other.

    Args:
        rows: The rows.
        names: Columns of whole numbers, text, bytes, dates or flags.
        seed: Another seed is another hash.

    Example:
        >>> rows = pa.record_batch({"a": [1, 2, 1], "b": ["x", "x", "x"]})
        >>> hashes = hash_columns(rows, ["a", "b"], seed=1)
        >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        (True, False)

    Raises:
        BadValueError: A column is of a type that has no exact equality.
    """
    total = np.zeros(rows.num_rows, np.uint64)
    for place, name in enumerate(names):
        # Another seed for each place: columns that swap their values are another key.
        total += hash_array(rows.column(name), seed + place, name)
    return total if len(names) == 1 else mixed(total, seed)


def hash_array(values: pa.Array, seed: int, name: str = "key") -> Hashes:
    """One hash for each value of an array; see ``hash_columns``."""
    check_hashable(name, values.type)
    if _is_bytes(values.type):
        hashes = _hash_bytes(values, seed)
    else:
        whole = values.fill_null(_zero(values.type)) if values.null_count else values
        hashes = mixed(_words(whole), seed)
    if values.null_count:
        hashes[pc.is_null(values).to_numpy(zero_copy_only=False)] = _NULL ^ np.uint64(seed)
    return hashes


def check_hashable(name: str, kind: pa.DataType) -> None:
    """Refuse keys whose equality is not exact.

    Raises:
        BadValueError: The column is of floating point, or nested.
    """
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    if not plain and not _is_bytes(kind):
        raise BadValueError(
            f"The column {name!r} of type {kind} cannot be a key.",
            why="Keys are compared for equality: whole numbers, text, bytes, dates and flags.",
            do="Cast it to bigint or string first.",
        )


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))


def _zero(kind: pa.DataType) -> pa.Scalar:
    return (
        pa.scalar(0, pa.int64()).cast(kind) if not pa.types.is_boolean(kind) else pa.scalar(False)
    )


def _words(values: pa.Array) -> Hashes:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    wide = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
    words: Hashes = wide.view(np.uint64)
    return words


def _hash_bytes(values: pa.Array, seed: int) -> Hashes:
    """Hash every byte with its place in its string, and add these up per string."""
    large = values.cast(pa.large_binary())
    offsets = np.frombuffer(large.buffers()[1], np.int64)[large.offset :][: len(large) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    if first == last:
        return mixed(lengths.view(np.uint64), seed)
    letters = np.frombuffer(large.buffers()[2], np.uint8)[first:last]
    places = np.arange(last - first) - np.repeat(offsets[:-1] - first, lengths)
    words = places.view(np.uint64) << np.uint64(8) | letters
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum(mixed(words * _ODD, seed), out=sums[1:])  # sums wrap around, and so do differences
    total: Hashes = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
    return mixed(total + lengths.view(np.uint64), seed)
