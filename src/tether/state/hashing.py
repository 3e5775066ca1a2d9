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
    result = wide.view(np.uint64) ^ np.uint64(seed)
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
    starts = offsets[:-1]
    lengths = offsets[1:] - starts
    result = mix(lengths, seed)
    first = int(offsets[0]) if len(offsets) else 0
    padded = np.zeros(int(offsets[-1]) - first + 8, np.uint8)
    padded[:-8] = data[first : int(offsets[-1])]
    # A view with a stride of one byte: element i is the word that starts at byte i.
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    starts = starts - first
    longest = int(lengths.max()) if len(lengths) else 0
    todo = np.flatnonzero(lengths > 0)
    for done in range(0, min(longest, _LONGEST), 8):
        left = lengths[todo] - done
        short = np.maximum(8 - left, 0).astype(np.uint64) * np.uint64(8)
        word = words[starts[todo] + done] << short
        result[todo] = mix(result[todo] ^ word, seed)
        todo = todo[left > 8]
    for row in todo.tolist() if longest > _LONGEST else ():
        text = padded[starts[row] + _LONGEST : starts[row] + int(lengths[row])]
        digest = hashlib.blake2b(text.tobytes(), digest_size=8).digest()
        result[row] ^= np.uint64(int.from_bytes(digest, "little"))
    return result


def combine(hashes: Array, more: Array, seed: int) -> Array:
    """Hash of a pair, from the hashes of its parts; the order matters."""
    return mix(hashes + (more ^ (more >> np.uint64(29))), seed)


def top_bits(hashes: Array) -> Array:
    """The 32 best bits of each hash: what the index and the stored hashes use."""
    return (hashes >> _SHIFT).astype(np.uint32)
