"""Entries of the commit log as bytes: length and checksum first, and a magic to find the next by.

Layout, little endian: ``magic 6s | version u16 | length u32 | crc u32 | msgpack``. The crc covers
version, length and body.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from tether.backup.commits import CommitRecord, CommitSnapshot, LogEntry
from tether.core.errors import BackupUnreadableError, BadValueError

MAGIC = b"TETHCM"
VERSION = 1
_PREFIX = struct.Struct("<6sHII")


class ScannedLog(NamedTuple):
    """What is in a log's bytes, in order.

    ``entries`` holds an entry, or a text where something stood that cannot be read. ``clean_bytes``
    is the length up to which the log may be kept when it is opened for writing: all but a tail
    that was never completely written.
    """

    entries: list[LogEntry | str]
    clean_bytes: int
    torn: str
    """What is wrong with the tail; empty if nothing."""


def encode_entry(entry: LogEntry) -> bytes:
    """Turn an entry into bytes.

    Raises:
        BadValueError: the entry could not be read back if it were written.
    """
    try:
        body = msgspec.msgpack.encode(entry)
        msgspec.msgpack.decode(body, type=CommitRecord | CommitSnapshot)
        checked = struct.pack("<HI", VERSION, len(body))
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, struct.error) as error:
        raise BadValueError(
            "A commit record is not valid.",
            why=str(error),
            do="Give every field the type and range that CommitRecord documents.",
        ) from error
    return b"".join([MAGIC, checked, struct.pack("<I", crc32(body, crc32(checked))), body])


def decode_entry(data: bytes) -> LogEntry:
    """Read bytes that should be exactly one entry.

    Raises:
        BackupUnreadableError: they are not.
    """
    scanned = scan_log(data)
    if len(scanned.entries) == 1 and not scanned.torn and not isinstance(scanned.entries[0], str):
        return scanned.entries[0]
    raise BackupUnreadableError(
        "A commit record cannot be read.",
        why=scanned.torn
        or next((e for e in scanned.entries if isinstance(e, str)), "It is empty."),
        do="Restore the backup directory from a copy, or start anew in an empty one.",
    )


def scan_log(data: bytes) -> ScannedLog:
    """Read every entry that can be read; never raises, whatever the bytes.

    Damage in the middle is noted and the next magic is looked for. At the end, an entry whose
    claimed length is not all there is a torn tail: the write that never returned.

    Example:
        >>> log = encode_entry(CommitRecord(epoch=1, run="r", slots={}))
        >>> scan_log(log + log[:9]).torn
        'The last 9 bytes are an entry that was not completely written.'
    """
    entries: list[LogEntry | str] = []
    position = 0
    while position < len(data):
        found = _entry_at(data, position)
        if not isinstance(found, str):
            entry, position = found
            entries.append(entry)
            continue
        following = _next_entry(data, position + 1)
        if following == len(data) and _looks_torn(data, position):
            rest = len(data) - position
            torn = f"The last {rest} bytes are an entry that was not completely written."
            return ScannedLog(entries, position, torn)
        entries.append(f"Bytes {position} to {following} cannot be read: {found}")
        position = following
    return ScannedLog(entries, len(data), "")


def _entry_at(data: bytes, position: int) -> tuple[LogEntry, int] | str:
    """The entry at a position and where the next one begins, or what is wrong there."""
    if len(data) - position < _PREFIX.size:
        return "too short for an entry."
    magic, version, length, crc = _PREFIX.unpack_from(data, position)
    start = position + _PREFIX.size
    body = memoryview(data)[start : start + length]
    if magic != MAGIC:
        wrong = "no entry begins there."
    elif version != VERSION:
        wrong = f"format {version}, where this version of Tether reads {VERSION}."
    elif length > len(body):
        wrong = "the entry claims more bytes than there are."
    elif crc32(body, crc32(data[position + 6 : position + 12])) != crc:
        wrong = "its checksum does not match."
    else:
        try:
            return msgspec.msgpack.decode(body, type=CommitRecord | CommitSnapshot), start + length
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            wrong = f"its content is not valid: {error}."
    return wrong


def _next_entry(data: bytes, position: int) -> int:
    found = data.find(MAGIC, position)
    while found >= 0:
        if not isinstance(_entry_at(data, found), str):
            return found
        found = data.find(MAGIC, found + 1)
    return len(data)


def _looks_torn(data: bytes, position: int) -> bool:
    # A power cut can leave the file longer than what reached the disk: zeros instead of the rest.
    rest = data[position:]
    if not rest.strip(b"\0"):
        return True
    if len(rest) < _PREFIX.size:
        return MAGIC.startswith(rest[:6])
    magic, _, length, _ = _PREFIX.unpack_from(rest)
    return bool(magic == MAGIC and length > len(rest) - _PREFIX.size)
