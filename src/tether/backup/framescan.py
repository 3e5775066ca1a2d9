"""Finds the frames in a log file by their heads, also after damage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.framecodec import (
    MAGIC,
    MAX_HEAD_BYTES,
    TRAILER,
    decode_header,
    decode_prefix,
    is_trailer,
)
from tether.core.errors import BackupUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.backup.framecodec import Prefix
    from tether.backup.frames import FrameHeader

_MOST_HEADS = 4096  # bytes; longer heads need a second read
_STRIDE = 1 << 20


class FoundFrame(NamedTuple):
    """A section of a log: a frame's header, or why there is none."""

    offset: int
    length: int
    header: FrameHeader | BackupUnreadableError
    digest: int = 0
    """See :attr:`FrameRef.digest`."""


def scan_frames(descriptor: int) -> Iterator[FoundFrame]:
    """Every frame of a log in order.

    States are not read, so only heads are checked. After damage the scan continues at the next undamaged
    head, so that one bad frame does not hide later ones.
    """
    size = os.fstat(descriptor).st_size
    position = 0
    while position < size:
        try:
            header, prefix = _frame_at(descriptor, position, size)
        except BackupUnreadableError as error:
            following = _next_frame(descriptor, position + 1, size)
            yield FoundFrame(position, following - position, error)
            position = following
        else:
            yield FoundFrame(position, prefix.frame_bytes, header, prefix.head_crc)
            position += prefix.frame_bytes


def ends_with_whole_frame(descriptor: int) -> bool:
    """Whether a frame may be appended: after a torn frame it would be hard to find."""
    size = os.fstat(descriptor).st_size
    return is_trailer(os.pread(descriptor, TRAILER.size, max(0, size - TRAILER.size)))


def _frame_at(descriptor: int, position: int, size: int) -> tuple[FrameHeader, Prefix]:
    data = os.pread(descriptor, _MOST_HEADS, position)
    prefix = decode_prefix(data)
    if prefix.padded_head_bytes > len(data):
        data = os.pread(descriptor, prefix.padded_head_bytes, position)
    header = decode_header(data)
    if prefix.frame_bytes > size - position:
        raise BackupUnreadableError(
            "A backup frame cannot be read.",
            why=f"It is torn: {size - position} of its {prefix.frame_bytes} bytes were written.",
            do="Nothing: its write never finished, so nothing counts on it.",
        )
    return header, prefix


def _next_frame(descriptor: int, position: int, size: int) -> int:
    while position < size:
        chunk = os.pread(descriptor, _STRIDE + len(MAGIC), position)
        found = chunk.find(MAGIC)
        while found >= 0:
            try:
                decode_header(os.pread(descriptor, 2 * MAX_HEAD_BYTES, position + found))
            except BackupUnreadableError:
                found = chunk.find(MAGIC, found + 1)
            else:
                return position + found
        position += _STRIDE
    return size
