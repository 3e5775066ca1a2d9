"""64-bit hashes of whole columns of keys, without a loop over rows.

Only the speed of the index depends on these: keys are always compared exactly. A random seed per
table keeps a hostile stream from choosing keys that collide.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tether.state.segment import Array

_FIRST = np.uint64(0xD6E8FEB86659FD93)
_SECOND = np.uint64(0xA0761D6478BD642F)
_SHIFT = np.uint64(32)
_ALL = (1 << 64) - 1
_LONGEST = 256  # bytes hashed column-wise; what is longer is rare and hashed key by key


def mix(words: Array, seed: int) -> Array:
    """Scramble 64-bit words so that every output bit depends on every input bit.

    Args:
        words: Integers of any width; reinterpreted, not converted, when 64-bit.
        seed: Any 64-bit number.

    Returns:
        A fresh array of uint64.
    """
    wide = words if words.dtype.itemsize == 8 else words.astype(np.int64)
    result = wide.view(np.uint64) ^ np.uint64(seed & _ALL)
    scratch = result >> _SHIFT
    result ^= scratch
    result *= _FIRST
    np.right_shift(result, _SHIFT, out=scratch)
    result ^= scratch
    result *= _SECOND
    return result


def mix_bytes(data: Array, offsets: Array, seed: int) -> Array:
    """Hash byte strings, eight bytes of all of them at a time.

    Args:
        data: All bytes, as uint8.
        offsets: Start of each string, and the end of the last.
        seed: Any 64-bit number.

    Returns:
        uint64 per string.
    """
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    result = mix(lengths, ~seed)  # another one than below, so that no length undoes a word
    if first == last:
        return result
    padded = np.zeros(last - first + 8, np.uint8)
    padded[:-8] = data[first:last]
    # A view with a stride of one byte: element i is the word that starts at byte i.
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    at, left = offsets[:-1] - first, lengths
    todo: Array | None = None  # all of them
    if int(lengths.min()) == 0:
        todo = (lengths > 0).nonzero()[0]
        at, left = at.take(todo), left.take(todo)
    for _ in range(0, _LONGEST, 8):
        word = words[at]
        if int(left.min()) < 8:  # shift what belongs to the next string out
            word <<= (np.maximum(8 - left, 0) * 8).astype(np.uint64)
        word ^= result if todo is None else result.take(todo)
        result[slice(None) if todo is None else todo] = mix(word, seed)
        more = (left > 8).nonzero()[0]
        if len(more) < len(left):
            todo = more if todo is None else todo.take(more)
            at, left = at.take(more), left.take(more)
        if not len(more):
            return result
        at, left = at + 8, left - 8
    for row, start, length in zip(*_lists(todo, at, left), strict=True):
        digest = hashlib.blake2b(padded[start : start + length].tobytes(), digest_size=8).digest()
        result[row] ^= np.uint64(int.from_bytes(digest, "little"))
    return result


def _lists(todo: Array | None, at: Array, left: Array) -> tuple[list[int], list[int], list[int]]:
    rows = list(range(len(at))) if todo is None else todo.tolist()
    return rows, at.tolist(), left.tolist()


def combine(hashes: Array, more: Array, seed: int) -> Array:
    """Hash of a pair, from the hashes of its parts; the order matters."""
    return mix(hashes + (more ^ (more >> np.uint64(29))), seed)


def top_bits(hashes: Array) -> Array:
    """The 32 best bits of each hash: what the index and the stored hashes use."""
    return (hashes >> _SHIFT).astype(np.uint32)
