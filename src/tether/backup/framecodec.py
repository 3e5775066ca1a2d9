"""A frame as bytes: written without copies, and used only after it has been checked.

Layout, little endian::

    magic 6s | version u16 | head length u32 | payload length u64 | payload crc u32 | head crc u32
    head: msgpack of header and part table, zero-padded to a multiple of 8
    payload: one Arrow IPC stream for each part, each zero-padded to a multiple of 8
    trailer: magic 4s | head crc u32

The head crc covers prefix, head and padding; the prefix carries the payload's crc; so every byte is
covered, yet a head can be trusted without reading its payload. The trailer lets a writer see in
one small read whether a log ends with a whole frame. Streams lie at multiples of 8, as Arrow lays
out what is in them, so that it can use them where they are.

CRC-32 and not a cryptographic hash: the enemy is a torn write or a flipped bit, and on 50 MB zlib's
crc32 takes 14 ms where blake2b-128 takes 68.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa

from tether.backup.frames import Frame, FrameHeader
from tether.backup.packing import packed, unpacked
from tether.core.errors import BackupUnreadableError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Compression = Literal["none", "lz4", "zstd"]

MAGIC = b"TETHFR"
VERSION = 1
PACKED_VERSION = 2
"""Of frames with numbers in fewer bytes (:mod:`tether.backup.packing`), which older code cannot read."""
MAX_HEAD_BYTES = 1 << 16
"""Longest possible head; a length field with a larger value is damaged."""
TRAILER = struct.Struct("<4sI")

_PREFIX = struct.Struct("<6sHIQII")
_PREFIX_CHECKED = _PREFIX.size - 4
PREFIX_BYTES = _PREFIX.size
_TRAILER_MAGIC = b"TEND"
_ALIGNMENT = 8


class _PartEntry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    length: int


class _Head(msgspec.Struct, frozen=True):
    header: FrameHeader
    parts: list[_PartEntry]


class Prefix(NamedTuple):
    """The fixed-size beginning of a frame, not verified except for its lengths."""

    head_bytes: int
    payload_bytes: int
    payload_crc: int
    head_crc: int

    @property
    def padded_head_bytes(self) -> int:
        """Prefix, head and padding: where the payload starts."""
        return _aligned(PREFIX_BYTES + self.head_bytes)

    @property
    def frame_bytes(self) -> int:
        """Length of the whole frame."""
        return self.padded_head_bytes + self.payload_bytes + TRAILER.size


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _unreadable(why: str) -> BackupUnreadableError:
    return BackupUnreadableError(
        "A backup frame cannot be read.",
        why=why,
        do="Nothing if recovery goes on with an older frame and a larger bound; else check the "
        "disk, or restore the backup directory from a copy.",
    )


# --- writing -------------------------------------------------------------------------------------


def encode_frame(
    header: FrameHeader,
    parts: Mapping[str, Sequence[pa.RecordBatch]],
    *,
    compression: Compression = "none",
) -> list[bytes | pa.Buffer]:
    """Turn a frame into buffers to be written one after the other.

    Uncompressed state is not copied, but for numbers that fit into fewer bytes: the buffers are those of
    the batches, which must not change before they have been written.

    Raises:
        BadValueError: the header or the batches could not be read back if they were written.
    """
    table: list[_PartEntry] = []
    payload: list[bytes | pa.Buffer] = []
    version = VERSION
    for name, batches in parts.items():
        _check_schemas(name, batches)
        shorter, changed = packed(batches)
        version = PACKED_VERSION if changed else version
        stream = _encode_part(shorter, compression)
        size = sum(map(len, stream))
        table.append(_PartEntry(name, size))
        payload.extend(stream)
        payload.append(bytes(_aligned(size) - size))
    payload_crc = 0
    for piece in payload:
        payload_crc = crc32(piece, payload_crc)
    head = _encode_head(_Head(header, table))
    padding = bytes(_aligned(PREFIX_BYTES + len(head)) - PREFIX_BYTES - len(head))
    checked = _PREFIX.pack(MAGIC, version, len(head), sum(map(len, payload)), payload_crc, 0)
    checked = checked[:_PREFIX_CHECKED]
    head_crc = crc32(padding, crc32(head, crc32(checked)))
    start = b"".join([checked, struct.pack("<I", head_crc), head, padding])
    return [
        start,
        *(piece for piece in payload if len(piece)),
        TRAILER.pack(_TRAILER_MAGIC, head_crc),
    ]


class _Pieces(io.RawIOBase):
    """A file that keeps the buffers that Arrow writes to it, without copies of large ones."""

    def __init__(self) -> None:
        self.pieces: list[bytes | pa.Buffer] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes | pa.Buffer) -> int:
        self.pieces.append(piece)
        return len(piece)


def _check_schemas(name: str, batches: Sequence[pa.RecordBatch]) -> None:
    if any(batch.schema != batches[0].schema for batch in batches):
        raise BadValueError(
            f"The batches of part {name!r} have different schemas.",
            why="A part is one Arrow stream, and a stream has one schema.",
            do="Give each schema a part of its own.",
        )


def _encode_part(
    batches: Sequence[pa.RecordBatch], compression: Compression
) -> list[bytes | pa.Buffer]:
    sink = _Pieces()
    if batches:
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        with pa.ipc.new_stream(pa.PythonFile(sink), batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return sink.pieces


def _encode_head(head: _Head) -> bytes:
    # msgspec checks types when it decodes, not when a struct is made. So read the header back now,
    # instead of finding it unreadable when it is needed.
    try:
        encoded = msgspec.msgpack.encode(head)
        msgspec.msgpack.decode(encoded, type=_Head)
        if len(encoded) > MAX_HEAD_BYTES:
            raise ValueError(f"it takes {len(encoded)} bytes, at most {MAX_HEAD_BYTES} are allowed")
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise BadValueError(
            "The header of a backup frame is not valid.",
            why=str(error),
            do="Give every field the type and range that FrameHeader documents.",
        ) from error
    return encoded


# --- reading -------------------------------------------------------------------------------------


def decode_prefix(data: bytes | memoryview) -> Prefix:
    """Read a prefix; refuse impossible values.

    Raises:
        BackupUnreadableError: too short, not a frame, or of a newer format.
    """
    if len(data) < PREFIX_BYTES:
        raise _unreadable(f"It is torn: {len(data)} bytes where a frame begins.")
    magic, version, head_bytes, payload_bytes, payload_crc, head_crc = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise _unreadable("It does not begin as a frame does.")
    if version not in (VERSION, PACKED_VERSION):
        raise _unreadable(f"Its format is {version}; this version reads up to {PACKED_VERSION}.")
    if head_bytes > MAX_HEAD_BYTES:
        raise _unreadable(f"Its head claims to be {head_bytes} bytes long.")
    return Prefix(head_bytes, payload_bytes, payload_crc, head_crc)


def digest_of(frame: bytes | pa.Buffer | memoryview) -> int:
    """The digest of a frame in references: the checksum of its head.

    Raises:
        BackupUnreadableError: too short, not a frame, or of a newer format.
    """
    return decode_prefix(memoryview(frame)[:PREFIX_BYTES]).head_crc


def decode_header(data: bytes | memoryview) -> FrameHeader:
    """Read a header from the first bytes of a frame; the payload is neither needed nor checked.

    Raises:
        BackupUnreadableError: the bytes are not a whole, undamaged head.
    """
    return _decode_head(decode_prefix(data), memoryview(data)).header


def _decode_head(prefix: Prefix, data: memoryview) -> _Head:
    if len(data) < prefix.padded_head_bytes:
        raise _unreadable("It is torn: its head is not all there.")
    crc = crc32(data[:_PREFIX_CHECKED])
    if crc32(data[PREFIX_BYTES : prefix.padded_head_bytes], crc) != prefix.head_crc:
        raise _unreadable("The checksum of its head does not match.")
    try:
        return msgspec.msgpack.decode(
            data[PREFIX_BYTES : PREFIX_BYTES + prefix.head_bytes], type=_Head
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(f"Its head is not valid: {error}.") from error


def decode_frame(data: bytes | pa.Buffer) -> Frame:
    """Read a whole frame; the batches use the memory of ``data``, nothing is copied.

    Raises:
        BackupUnreadableError: for any defect of the bytes. No other exception is raised, and no length
            in the bytes is used before it has been checked.
    """
    buffer = pa.py_buffer(data)
    view = memoryview(buffer).cast("B")
    prefix = decode_prefix(view)
    if prefix.frame_bytes != len(view):
        raise _unreadable(f"It should be {prefix.frame_bytes} bytes long and is {len(view)}.")
    head = _decode_head(prefix, view)
    if not is_trailer(view[-TRAILER.size :]) or view[-4:] != struct.pack("<I", prefix.head_crc):
        raise _unreadable("Its end is damaged.")
    start, stop = prefix.padded_head_bytes, len(view) - TRAILER.size
    if crc32(view[start:stop]) != prefix.payload_crc:
        raise _unreadable("The checksum of its state does not match.")
    return Frame(head.header, _decode_parts(head.parts, buffer.slice(start, stop - start)))


def is_trailer(data: bytes | memoryview) -> bool:
    """Whether a log that ends with these eight bytes ends with a whole frame."""
    return len(data) == TRAILER.size and TRAILER.unpack(data)[0] == _TRAILER_MAGIC


def _decode_parts(table: list[_PartEntry], payload: pa.Buffer) -> dict[str, list[pa.RecordBatch]]:
    parts: dict[str, list[pa.RecordBatch]] = {}
    position = 0
    for entry in table:
        if entry.name in parts or not 0 <= entry.length <= payload.size - position:
            raise _unreadable(f"Its table of parts is not valid at {entry.name!r}.")
        parts[entry.name] = _decode_part(entry, payload.slice(position, entry.length))
        position += _aligned(entry.length)
    if position != payload.size:
        raise _unreadable("Its table of parts does not cover its state.")
    return parts


def _decode_part(entry: _PartEntry, stream: pa.Buffer) -> list[pa.RecordBatch]:
    if not entry.length:
        return []
    try:
        source = pa.BufferReader(stream)
        batches = list(pa.ipc.open_stream(source))
        for batch in batches:
            batch.validate(full=True)
        batches = [unpacked(batch) for batch in batches]
        left_over = stream.size - source.tell()
    # For damaged streams Arrow raises many classes (its own, OSError, MemoryError, ...).
    except Exception as error:
        raise _unreadable(f"Arrow cannot read part {entry.name!r}: {error}.") from error
    if left_over:
        raise _unreadable(f"Part {entry.name!r} is followed by {left_over} bytes that are not its.")
    return batches
