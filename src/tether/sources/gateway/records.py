"""Records of a gateway's log: a checksum over all of it, so that a torn one is never read as good.

A record is a fixed head, an *entry* (what happened, msgpack) and a body (the items, Arrow IPC).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.protocols.lost_items import LostItems  # noqa: TC001 - msgspec reads it at run time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_HEAD = struct.Struct("<4sIIQ")  # magic, checksum, bytes of the entry, bytes of the body
_MAGIC = b"TGW1"


class SavedRun(NamedTuple):
    """Items of one batch, as the log has them."""

    number: int
    producer: str
    first: int
    """The producer's own number of the first of them."""
    items: int
    nbytes: int
    """Of the batch in the record's body; 0: the same batch as of the run before, after its rows."""


class Boundary(NamedTuple):
    """A producer's word that nothing older than a time will come."""

    number: int
    """Its place among the stream's items; it takes up a number of its own."""
    producer: str
    time: float
    """Event time in seconds."""


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A query that reads the stream."""

    upto: int = 0
    """It will not ask for items up to this number again."""
    since: int = 0
    """Items up to this number were gone when it came."""
    max_lost: float = float("inf")
    """L: most items that it allows all crashes of the gateway together to lose."""
    max_unacked: float = float("inf")
    """Γ: most items that it allows all deaths of producers together to lose."""


class OpenProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer that may hold items which nobody else has."""

    life: str
    """Names one process's memory; another one under the same producer id does not have its items."""
    max_unacked: float
    """γ: most items that it may hold unacknowledged."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What must never be forgotten of a stream: its losses, its readers, and what may be lost now."""

    limit: float = 0.0
    """l that counts for a loss now. Grows only after it is durable."""
    losses: tuple[LostItems, ...] = ()
    readers: dict[str, Reader] = {}
    producers: dict[str, OpenProducer] = {}
    """Producers that have not ended in good order."""
    died: tuple[float, ...] = ()
    """Most unacknowledged items that each producer may have lost that another one took over from."""

    @property
    def failures(self) -> int:
        """k: losses that have cost something."""
        return sum(bool(loss.at_most) for loss in self.losses)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One durable fact about a stream, or several; all that it does not name stays as it was."""

    runs: tuple[SavedRun, ...] = ()
    shown: int | None = None
    """Newest number that a reader may know."""
    used: int | None = None
    """Newest number that is in use or lost; written at a restart."""
    committed: int | None = None
    life: int | None = None
    """How often the stream has been opened."""
    heard: dict[str, int] = {}
    boundaries: tuple[Boundary, ...] = ()
    account: Account | None = None
    clean: bool = False
    """The gateway has ended in good order: everything before this record is all there was."""


class Found(NamedTuple):
    """A record as it was read back."""

    entry: Entry
    body: int
    """Offset of its body in the file."""
    end: int
    """Offset of the byte after it."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def packed(entry: Entry, body: Sequence[pa.Buffer | bytes] = ()) -> list[bytes | pa.Buffer]:
    """A record's bytes, as buffers to be written one after the other."""
    meta = _encode(entry)
    length = sum(len(part) for part in body)
    sizes = struct.pack("<IQ", len(meta), length)
    check = zlib.crc32(meta, zlib.crc32(sizes))
    for part in body:
        check = zlib.crc32(part, check)
    return [_HEAD.pack(_MAGIC, check, len(meta), length), meta, *body]


def body_offset(entry_and_head: Sequence[bytes | pa.Buffer]) -> int:
    """Offset of the body of a packed record, from the record's first byte."""
    return len(entry_and_head[0]) + len(entry_and_head[1])


def scan(data: memoryview) -> Iterator[Found]:
    """All whole records from a file's beginning; ends at the first that is not."""
    at = 0
    while at + _HEAD.size <= len(data):
        magic, check, meta_bytes, body_bytes = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + meta_bytes
        end = body + body_bytes
        if magic != _MAGIC or end > len(data):
            return
        sizes = data[at + 8 : at + _HEAD.size]
        if zlib.crc32(data[at + _HEAD.size : end], zlib.crc32(sizes)) != check:
            return
        try:
            entry = _decode(data[at + _HEAD.size : body])
        except msgspec.DecodeError:
            return
        yield Found(entry, body, end)
        at = end
