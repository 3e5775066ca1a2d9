"""The keys of a keyed state: every key once, in the order of arrival, and found again by hash.

Row numbers are given in order and never change. Keys are compared exactly, part by part: NumPy
compares fixed widths, Arrow compares byte strings where they lie in the mapped file. A key of a
single fixed-width field costs its own width plus the index; other keys also keep 32 bits of their
hash, which spares nearly all comparisons of different keys.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tether.state import hashing
from tether.state.arrow import byte_strings, mask_of, wrapped
from tether.state.header import GENERATION, INDEX, KEY_WORDS, ROWS
from tether.state.index import Index
from tether.state.leaves import BYTES, BytesPart, Canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.state.codec import Codec
    from tether.state.place import Place
    from tether.state.segment import Array

_HAS_NULLS, _SEED = 2, 3  # words after those of the index


class Keys:
    """All keys of one generation of a keyed state.

    Args:
        place: Where the primitive lives.
        codec: Canonical form of its keys.
    """

    def __init__(self, place: Place, codec: Codec) -> None:
        self._place = place
        self._page = place.page
        self._codec = codec
        generation = self._page.words[GENERATION]
        self._prefix = f"{generation}."
        self._word = INDEX + KEY_WORDS * (generation % 2)
        words = self._page.words
        if not words[self._word + _SEED]:
            words[self._word + _SEED] = secrets.randbits(62) | 1
        self.seed = words[self._word + _SEED]
        self.columns = [
            _Bytes(place, f"{self._prefix}key{at}")
            if kind == BYTES
            else _Fixed(place, f"{self._prefix}key{at}", kind)
            for at, kind in enumerate(codec.parts)
        ]
        self.simple = len(self.columns) == 1 and codec.parts[0] != BYTES
        if not self.simple:
            self.hashes = place.segment(f"{self._prefix}hash", "u4")
        self._open_nulls()
        self.index = Index(place, self._prefix, odd=bool(generation % 2))

    def _open_nulls(self) -> None:
        self.nulls = None
        if self._page.words[self._word + _HAS_NULLS]:
            self.nulls = self._place.segment(f"{self._prefix}nulls", self._codec.null_type)

    def refresh(self) -> None:
        """Follow what another process has added."""
        self.index.refresh()
        if self.nulls is None:
            self._open_nulls()

    def allow_nulls(self) -> None:
        """From now on keep the null bits of every key."""
        if self.nulls is None:
            self._place.litter()
            name = f"{self._prefix}nulls"
            self.nulls = self._place.segment(name, self._codec.null_type, new=True)
            self.nulls.ensure(self._page.words[ROWS])
            self._page.words[self._word + _HAS_NULLS] = 1

    def find(self, arrays: Sequence[Any]) -> Array:
        """Row of each key; -1 for keys that are not there."""
        rows, _, _ = self.index.find(self.batch(arrays), self._page.words[ROWS])
        return rows

    def upsert(self, arrays: Sequence[Any]) -> tuple[Array, int]:
        """Row of each key, and the number of rows there would be with those that are new.

        New keys exist only when the caller stores that number in the header; until then all is
        as if they had never been added.
        """
        batch = self.batch(arrays)
        existing = self._page.words[ROWS]
        found = self.index.find(batch, existing)
        if len(found[0]) and found[0].min() < 0:
            same = self._page.saved(GENERATION) == self._page.words[GENERATION]
            boundary = self._page.saved(ROWS) if same else 0
            existing = self.index.insert(batch, found, existing, boundary)
        return found[0], existing

    def batch(self, arrays: Sequence[Any]) -> KeyBatch:
        """A batch of keys in the form that the index works with."""
        return KeyBatch(self, self._codec.encode(arrays))

    def decode(self, rows: Array | slice) -> list[Any]:
        """The keys of some rows as Arrow arrays."""
        count = len(self) if isinstance(rows, slice) else len(rows)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            count = max(stop - start, 0)
            rows = slice(start, start + count)
        nulls = None if self.nulls is None else self.nulls.data[rows]
        if nulls is not None and not nulls.any():
            nulls = None
        parts = [column.take(rows, len(self)) for column in self.columns]
        return self._codec.decode(Canonical(count, parts, nulls))

    def __len__(self) -> int:
        return int(self._page.words[ROWS])


class KeyBatch:
    """A batch of keys on its way into the index."""

    def __init__(self, keys: Keys, canonical: Canonical) -> None:
        self._keys = keys
        self._canonical = canonical
        self.hashes = hash_keys(canonical.parts, canonical.nulls, keys.seed)

    def equal(self, rows: Array, items: Array | None) -> Array:
        """Whether stored rows hold the keys of these items (None: of all)."""
        if self._keys.simple:
            return self._exactly(rows, items)
        mine = self.hashes if items is None else self.hashes.take(items)
        alike: Array = self._keys.hashes.data.take(rows) == mine
        at = alike.nonzero()[0]
        if len(at) == len(alike):
            return self._exactly(rows, items)
        if len(at):
            alike[at] = self._exactly(rows[at], at if items is None else items[at])
        return alike

    def _exactly(self, rows: Array, items: Array | None) -> Array:
        mine, theirs = self._canonical.nulls, self._keys.nulls
        first, *others = zip(self._keys.columns, self._canonical.parts, strict=True)
        result = first[0].equal(rows, first[1], items)
        for column, part in others:
            result &= column.equal(rows, part, items)
        if mine is not None:
            mine = mine if items is None else mine[items]
            result &= mine == (0 if theirs is None else theirs.data.take(rows))
        elif theirs is not None:
            result &= theirs.data.take(rows) == 0
        return result

    def alike(self, items: Array, others: Array) -> Array:
        """Whether items of the batch have the same keys as other items of it, one by one."""
        result: Array = self.hashes.take(items) == self.hashes.take(others)
        for part in self._canonical.parts:
            if isinstance(part, BytesPart):
                mine, theirs = part.array.take(wrapped(items)), part.array.take(wrapped(others))
                result &= mask_of(pc.equal(mine, theirs))
            else:
                result &= part.take(items) == part.take(others)
        if self._canonical.nulls is not None:
            result &= self._canonical.nulls.take(items) == self._canonical.nulls.take(others)
        return result

    def append(self, items: Array, start: int) -> None:
        """Store the keys of these items as rows from ``start`` on."""
        keys, nulls = self._keys, self._canonical.nulls
        stop = start + len(items)
        for column, part in zip(keys.columns, self._canonical.parts, strict=True):
            column.append(part, items, start)
        if not keys.simple:
            keys.hashes.ensure(stop)
            keys.hashes.data[start:stop] = self.hashes[items]
        if nulls is not None:
            keys.allow_nulls()
        if keys.nulls is not None:
            keys.nulls.ensure(stop)
            keys.nulls.data[start:stop] = 0 if nulls is None else nulls[items]

    def stored_hashes(self, start: int, stop: int) -> Array:
        """The hashes of stored rows: computed again where that is cheaper than keeping them."""
        keys = self._keys
        if not keys.simple:
            return keys.hashes.data[start:stop]
        parts = [column.take(slice(start, stop), stop) for column in keys.columns]
        nulls = None if keys.nulls is None else keys.nulls.data[start:stop]
        return hash_keys(parts, nulls, keys.seed)


def hash_keys(parts: Sequence[Array | BytesPart], nulls: Array | None, seed: int) -> Array:
    """32-bit hashes of keys in canonical form; those without nulls hash as if there were none."""
    result: Array | None = None
    for part in parts:
        if isinstance(part, BytesPart):
            one = hashing.mix_bytes(part.data, part.offsets, seed)
        else:
            one = hashing.mix(part, seed)
        result = one if result is None else hashing.combine(result, one, seed)
    assert result is not None
    if nulls is not None:
        result += hashing.mix(nulls, 0)  # the mix of 0 is 0
    return hashing.top_bits(result)


class _Fixed:
    """One part of fixed width of all keys."""

    def __init__(self, place: Place, name: str, dtype: str) -> None:
        self._segment = place.segment(name, dtype)

    def equal(self, rows: Array, part: Any, items: Array | None) -> Array:
        mine = part if items is None else part.take(items)
        result: Array = self._segment.data.take(rows) == mine
        return result

    def append(self, part: Any, items: Array, start: int) -> None:
        self._segment.ensure(start + len(items))
        self._segment.data[start : start + len(items)] = part.take(items)

    def take(self, rows: Array | slice, existing: int) -> Array:
        del existing
        data = self._segment.data
        return data[rows].copy() if isinstance(rows, slice) else data.take(rows)


class _Bytes:
    """One part of variable length of all keys: all bytes in a row, and where each key ends."""

    def __init__(self, place: Place, name: str) -> None:
        self._heap = place.segment(f"{name}.heap", "u1")
        self._offsets = place.segment(f"{name}.ends", "i8")

    def equal(self, rows: Array, part: Any, items: Array | None) -> Array:
        mine = part.array if items is None else part.array.take(wrapped(items))
        stored = self._arrow(int(rows.max()) + 1 if len(rows) else 0)
        return mask_of(pc.equal(stored.take(wrapped(rows)), mine))

    def append(self, part: Any, items: Array, start: int) -> None:
        whole = len(items) == len(
            part.array
        )  # items are in ascending order, so these are all of them
        new = part if whole else BytesPart.of(part.array.take(wrapped(items)))
        stop = start + len(items)
        self._offsets.ensure(stop + 1)
        offsets = self._offsets.data
        used, first = int(offsets[start]), int(new.offsets[0])
        total = int(new.offsets[-1]) - first
        self._heap.ensure(used + total)
        self._heap.data[used : used + total] = new.data[first : first + total]
        offsets[start + 1 : stop + 1] = new.offsets[1:] + (used - first)

    def take(self, rows: Array | slice, existing: int) -> BytesPart:
        stored = self._arrow(existing)
        if isinstance(rows, slice):
            stored = stored.slice(rows.start, rows.stop - rows.start)
            stored = pa.concat_arrays([stored, stored.slice(0, 0)])  # a copy: the heap lives on
            return BytesPart.of(stored)
        return BytesPart.of(stored.take(wrapped(rows)))

    def _arrow(self, count: int) -> Any:
        self._offsets.ensure(1)
        heap = self._heap.data if len(self._heap.data) else b""
        return byte_strings(heap, self._offsets.data[: count + 1])
