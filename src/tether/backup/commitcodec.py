"""Entries of the commit log as bytes: numbered, chained, with checked lengths.

Layout, little endian::

    magic 6s | version u16 | number u64 | previous 8s | length u32 | body crc u32 | head crc u32
    body: msgpack of a CommitRecord or a CommitSnapshot

Records are numbered from 1 on without holes, and each carries the digest of the one before it: a missing
record is noticed, and so is one from another log. A snapshot stands for all records up to its number,
and carries the digest of the last of them. The head has its own checksum, so that a damaged length is
noticed. Without it one flipped bit would look like an unfinished append, and everything after it would
be dropped silently.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

import msgspec

from tether.backup.commits import CommitRecord, CommitSnapshot, LogEntry
from tether.core.errors import BackupUnreadableError, BadValueError

MAGIC = b"TETHCM"
VERSION = 2
_PREFIX = struct.Struct("<6sHQ8sIII")
_KNOWN = struct.Struct("<6sHQ8s")
"""The part of a head that follows from the previous entry."""


class LogEnd(NamedTuple):
    """The end of a log: the number and digest of its newest record.

    Both are 0 for a log that has begun and holds no record yet.
    """

    number: int
    digest: bytes


BEGINNING = LogEnd(0, bytes(8))
"""The end of a log without records."""


class Numbered(NamedTuple):
    """An entry in its place."""

    number: int
    previous: bytes
    """Digest of the record before; of a snapshot, that of the last record that it stands for."""
    content: LogEntry
    digest: bytes

    @property
    def end(self) -> LogEnd:
        """The end of a log whose newest entry this is."""
        summed_up = isinstance(self.content, CommitSnapshot)
        return LogEnd(self.number, self.previous if summed_up else self.digest)


class ScannedLog(NamedTuple):
    """What is in a log's bytes, in order."""

    entries: list[Numbered]
    damage: list[str]
    """Defects before the last readable entry."""
    tail: str
    """The defect after that entry; empty if there is none."""
    torn: bool
    """Whether the tail looks like an unfinished append."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage and not self.tail


def encode_entry(content: LogEntry, end: LogEnd = BEGINNING) -> bytes:
    """Encode what follows a log's end: a record, or a snapshot of all records up to there.

    Raises:
        BadValueError: the entry could not be read back if it were written.
    """
    number = end.number + isinstance(content, CommitRecord)
    try:
        body = msgspec.msgpack.encode(content)
        msgspec.msgpack.decode(body, type=CommitRecord | CommitSnapshot)
        head = _PREFIX.pack(MAGIC, VERSION, number, end.digest, len(body), crc32(body), 0)[:-4]
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, struct.error) as error:
        raise BadValueError(
            "A commit record is not valid.",
            why=str(error),
            do="Give every field the type and range that CommitRecord documents.",
        ) from error
    return b"".join([head, struct.pack("<I", crc32(head)), body])


def digest_of(entry: bytes) -> bytes:
    """The digest that the next entry contains."""
    return blake2b(entry, digest_size=8).digest()


def decode_entry(data: bytes) -> Numbered:
    """Read bytes that should be exactly one entry.

    Raises:
        BackupUnreadableError: they are not.
    """
    found = _entry_at(data, 0)
    if not isinstance(found, str) and found[1] == len(data):
        return found[0]
    raise BackupUnreadableError(
        "A commit record cannot be read.",
        why=found if isinstance(found, str) else "Something follows it.",
        do="Restore the backup directory from a copy, or start again in an empty one.",
    )


def scan_log(data: bytes) -> ScannedLog:
    """Read every entry that can be read; never raises, whatever the bytes.

    Example:
        >>> log = encode_entry(CommitRecord(epoch=1, run="r", slots={}))
        >>> scanned = scan_log(log + log[:9])
        >>> len(scanned.entries), scanned.tail, scanned.torn
        (1, 'Bytes 101 to 110 cannot be read: too short for an entry.', False)
        >>> scan_log(log + log[:8]).torn  # a second entry would begin like this
        True
    """
    entries: list[Numbered] = []
    damage: list[str] = []
    position = 0
    while position < len(data):
        found = _entry_at(data, position)
        if not isinstance(found, str):
            entry, position = found
            entries.append(entry)
            continue
        following = _next_entry(data, position + 1)
        note = f"Bytes {position} to {following} cannot be read: {found}"
        if following == len(data):
            end = entries[-1].end if entries else BEGINNING
            return ScannedLog(entries, damage, note, _looks_torn(data[position:], end))
        damage.append(note)
        position = following
    return ScannedLog(entries, damage, "", torn=False)


def _entry_at(data: bytes, position: int) -> tuple[Numbered, int] | str:
    """The entry at a position and the start of the next one, or the defect there."""
    if len(data) - position < _PREFIX.size:
        return "too short for an entry."
    magic, version, number, previous, length, crc, head_crc = _PREFIX.unpack_from(data, position)
    start = position + _PREFIX.size
    body = memoryview(data)[start : start + length]
    if magic != MAGIC:
        wrong = "no entry begins there."
    elif version != VERSION:
        wrong = f"format {version}, where this version of Tether reads {VERSION}."
    elif crc32(data[position : start - 4]) != head_crc:
        wrong = "the checksum of its head does not match."
    elif length > len(body):
        wrong = f"{len(body)} of its {length} bytes are there."
    elif crc32(body) != crc:
        wrong = "its checksum does not match."
    else:
        try:
            content = msgspec.msgpack.decode(body, type=CommitRecord | CommitSnapshot)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return f"its content is not valid: {error}."
        digest = digest_of(data[position : start + length])
        return Numbered(number, previous, content, digest), start + length
    return wrong


def _next_entry(data: bytes, position: int) -> int:
    found = data.find(MAGIC, position)
    while found >= 0:
        if not isinstance(_entry_at(data, found), str):
            return found
        found = data.find(MAGIC, found + 1)
    return len(data)


def _looks_torn(rest: bytes, end: LogEnd) -> bool:
    """Whether a tail is an incomplete next record."""
    # A power cut can leave the file longer than what reached the disk: zeros instead of the rest.
    if not rest.strip(b"\0"):
        return True
    foretold = _KNOWN.pack(MAGIC, VERSION, end.number + 1, end.digest)
    if rest[: len(foretold)] != foretold[: len(rest)]:
        return False
    if len(rest) < _PREFIX.size:
        return True
    *_, length, _, head_crc = _PREFIX.unpack_from(rest)
    vouched_for = crc32(rest[: _PREFIX.size - 4]) == head_crc
    return bool(vouched_for and length > len(rest) - _PREFIX.size)
