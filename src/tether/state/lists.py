"""Lists as parts of keys: each list becomes one byte string.

The elements of all lists of a batch are brought into canonical form together, like a batch of keys
of their own; then each list's share of it is written out: the number of elements, their null bits,
and part after part. This is a loop over rows. Lists are rare as keys, and only they pay for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.state.arrow import booleans, byte_strings, mask_of, raw, wrapped
from tether.state.leaves import BYTES, BytesPart, Canonical

if TYPE_CHECKING:
    from tether.state.codec import Codec
    from tether.state.segment import Array

_COUNT = struct.Struct("<q")


def _joined(texts: list[bytes]) -> BytesPart:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return BytesPart.of(byte_strings(b"".join(texts), offsets))


class ListLeaf:
    """Lists of any element type that can itself be a key."""

    def __init__(self, kind: pa.DataType, element: Codec) -> None:
        self._type = kind
        self._element = element
        self.parts = [BYTES]

    def encode(self, array: Any) -> list[Array | BytesPart]:
        """One byte string per list; an empty one for null."""
        array = array.cast(pa.large_list(self._type.value_type))
        lengths = raw(pc.list_value_length(array), "i8")
        if array.null_count:
            lengths = np.where(mask_of(array.is_valid()), lengths, 0)
        stops = np.cumsum(lengths)
        # list_flatten leaves out whatever lies behind nulls.
        elements = self._element.encode([pc.list_flatten(array)])
        valid = array.is_valid().to_pylist()
        texts = [
            self._text(elements, start, stop) if present else b""
            for start, stop, present in zip(
                (stops - lengths).tolist(), stops.tolist(), valid, strict=True
            )
        ]
        return [_joined(texts)]

    def _text(self, elements: Canonical, start: int, stop: int) -> bytes:
        pieces = [_COUNT.pack(stop - start)]
        if elements.nulls is None:
            pieces.append(np.zeros(stop - start, self._element.null_type).tobytes())
        else:
            pieces.append(elements.nulls[start:stop].tobytes())
        for part in elements.parts:
            if isinstance(part, BytesPart):
                bounds = part.offsets[start : stop + 1]
                pieces.append(np.diff(bounds).tobytes())
                pieces.append(part.data[bounds[0] : bounds[-1]].tobytes())
            else:
                pieces.append(part[start:stop].tobytes())
        return b"".join(pieces)

    def decode(self, parts: list[Any], valid: Array | None, count: int) -> Any:
        """The lists again."""
        del count
        texts = parts[0].array.to_pylist()
        lengths = [_COUNT.unpack_from(text)[0] if text else 0 for text in texts]
        elements = self._elements([text for text in texts if text])
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        mask = None if valid is None else booleans(~valid)
        result = pa.LargeListArray.from_arrays(wrapped(offsets), elements, mask=mask)
        return result.cast(self._type)

    def _elements(self, texts: list[bytes]) -> Any:
        null_type = np.dtype(self._element.null_type)
        nulls: list[Array] = [np.zeros(0, null_type)]
        gathered: list[list[Any]] = [[] for _ in self._element.parts]
        for text in texts:
            count, at = _COUNT.unpack_from(text)[0], _COUNT.size
            nulls.append(np.frombuffer(text, null_type, count, at))
            at += count * null_type.itemsize
            for kind, pieces in zip(self._element.parts, gathered, strict=True):
                width = 8 if kind == BYTES else np.dtype(kind).itemsize
                values = np.frombuffer(text, "i8" if kind == BYTES else kind, count, at)
                at += count * width
                if kind != BYTES:
                    pieces.append(values)
                    continue
                for length in values.tolist():
                    pieces.append(text[at : at + length])
                    at += length
        parts: list[Any] = [
            _joined(pieces) if kind == BYTES else np.concatenate([np.zeros(0, kind), *pieces])
            for kind, pieces in zip(self._element.parts, gathered, strict=True)
        ]
        mask = np.concatenate(nulls)
        canonical = Canonical(len(mask), parts, mask if mask.any() else None)
        return self._element.decode(canonical)[0]
