"""Marks of what was numbered and acknowledged, in a file that is never synced.

What a process has written stays with the kernel when the process is killed. So after a ``kill -9``
the marks are complete, and tell exactly which items died with the process's memory. The file has its
room on the disk from the beginning and is mapped into memory: a mark costs a few bytes copied, and
no call of the kernel. After a power cut marks may lack anything: they carry the kernel's boot id, and
those of another boot are not believed.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tether.backup.files import opened, read_whole, write_all
from tether.process import boot_id
from tether.protocols.lost_items import MarkedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_HEAD = struct.Struct("<IH")
ROLL_BYTES = 1 << 20
"""Room for marks. When it is used up, the file is replaced by a short summary."""
LONGEST_BYTES = 1 << 17
"""Larger than any mark, because the length of a mark is stored in two bytes."""

_encode = msgspec.msgpack.Encoder().encode


class Marks(NamedTuple):
    """What marks say."""

    runs: list[MarkedRun]
    """In order of their numbers."""
    heard: dict[str, int]
    """By producer, the newest of its numbers before those of ``runs``."""
    committed: int
    received: int


class MarkFile:
    """The marks of one stream.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._room = -1
        """When the marks take more bytes than this, it is time to begin the file again."""
        self.size = 0
        """Bytes of all marks."""

    def read(self, life: int) -> Marks | None:
        """What the gateway before this one has left; None if it cannot be believed.

        Args:
            life: How often the stream was opened, as the log says. Marks of an elder life were summed
                up in the log when this one began, and it ended before it took anything in.
        """
        try:
            data = read_whole(self._path)
        except FileNotFoundError:
            return None
        records = list(_records(data))
        if not records or records[0][:2] != ["boot", boot_id()]:
            return None
        found = Marks([], {}, 0, 0)
        if records[0][2] < life:
            return found
        for kind, *values in records[1:]:
            if kind == "r":
                run = MarkedRun(*values)
                found.runs.append(run)
                found = found._replace(received=max(found.received, run.last))
            elif kind == "c":
                found = found._replace(committed=max(found.committed, values[0]))
            elif kind == "n":
                found = found._replace(received=max(found.received, values[0]))
            elif kind == "h":
                found.heard[values[0]] = max(found.heard.get(values[0], 0), values[1])
        return found

    def begin(
        self,
        runs: Iterable[MarkedRun],
        heard: Mapping[str, int],
        *,
        committed: int,
        received: int,
        life: int,
    ) -> None:
        """Replace the file by a summary, in one step.

        Args:
            runs: Items that are neither processed nor durable.
            heard: By producer, the newest of its numbers, these items included.
            committed: Items up to this number are processed.
            received: The newest number.
            life: How often the stream was opened.
        """
        runs = list(runs)
        before = dict(heard)
        for run in reversed(runs):
            before[run.sender] = run.first - 1
        partial = self._path.with_suffix(".new")
        partial.unlink(missing_ok=True)
        told: list[tuple[Any, ...]] = [("boot", boot_id(), life), ("c", committed), ("n", received)]
        told += [("h", producer, number) for producer, number in before.items()]
        told += [("r", *run) for run in runs]
        data = b"".join(_record(one) for one in told)
        size = len(data) + ROLL_BYTES
        try:
            with opened(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
                # Reserve all bytes now: without room on disk, writing to a mapped page is a SIGBUS.
                os.posix_fallocate(descriptor, 0, size)
                write_all(descriptor, [data])
                room = mmap.mmap(descriptor, size)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        partial.replace(self._path)
        self.close()
        self._map, self.size, self._room = room, len(data), size - LONGEST_BYTES

    def taken(self, sender: str, first: int, number: int, items: int) -> None:
        """Items are about to be acknowledged; see ``MarkedRun``."""
        self._write(("r", sender, first, number, items))

    def committed(self, upto: int) -> None:
        """Items up to a number are processed."""
        self._write(("c", upto))

    @property
    def full(self) -> bool:
        """Whether it is time to begin the file again."""
        return self.size > self._room

    def close(self) -> None:
        """Let go of the file."""
        if self._map is not None:
            self._map.close()
            self._map, self._room = None, -1

    def _write(self, told: tuple[Any, ...]) -> None:
        data = _record(told)
        end = self.size + len(data)
        if self._map is None or end > len(self._map):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._map[self.size : end] = data
        self.size = end


def _record(told: tuple[Any, ...]) -> bytes:
    text = _encode(told)
    return _HEAD.pack(zlib.crc32(text), len(text)) + text


def _records(data: bytes) -> Iterable[list[Any]]:
    at = 0
    while at + _HEAD.size <= len(data):
        check, length = _HEAD.unpack_from(data, at)
        text = data[at + _HEAD.size : at + _HEAD.size + length]
        if not length or len(text) < length or zlib.crc32(text) != check:
            return  # the end, or a mark that was being written
        yield msgspec.msgpack.decode(text)
        at += _HEAD.size + length
