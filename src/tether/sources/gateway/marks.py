"""Marks of what was numbered and acknowledged, in a file that is never synced.

What a process has written stays with the kernel when the process is killed. So after a ``kill -9``
the marks are complete, and tell exactly which items died with the process's memory; each costs one
small write. After a power cut they may lack anything: they carry the kernel's boot id, and those of
another boot are not believed.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tether.backup.files import open_file, read_whole, write_all
from tether.protocols.lost_items import MarkedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HEAD = struct.Struct("<IH")
ROLL_BYTES = 4 << 20
"""Above this size the file is replaced by a short summary."""

_encode = msgspec.msgpack.Encoder().encode


class Marks(NamedTuple):
    """What marks say."""

    runs: list[MarkedRun]
    """In order of their numbers."""
    heard: dict[str, int]
    """By producer, the newest of its numbers before those of ``runs``."""
    committed: int
    received: int


def boot_id() -> str:
    """Names the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # pragma: no cover - not Linux: never believed
        return os.urandom(8).hex()


class MarkFile:
    """The marks of one stream.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.size = 0

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
        descriptor = open_file(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        told: list[tuple[Any, ...]] = [("boot", boot_id(), life), ("c", committed), ("n", received)]
        told += [("h", producer, number) for producer, number in before.items()]
        told += [("r", *run) for run in runs]
        data = b"".join(_record(one) for one in told)
        write_all(descriptor, [data])
        partial.replace(self._path)
        self.close()
        self._descriptor, self.size = descriptor, len(data)

    def taken(self, run: MarkedRun) -> None:
        """Items are about to be acknowledged."""
        self._write(("r", *run))

    def committed(self, upto: int) -> None:
        """Items up to a number are processed."""
        self._write(("c", upto))

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, told: tuple[Any, ...]) -> None:
        data = _record(told)
        written = os.write(self._descriptor, data)
        if written < len(data):  # a full disk: the rest would fail, too
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            raise OSError(28, "No space left on device", str(self._path))
        self.size += written


def _record(told: tuple[Any, ...]) -> bytes:
    text = _encode(told)
    return _HEAD.pack(zlib.crc32(text), len(text)) + text


def _records(data: bytes) -> Iterable[list[Any]]:
    at = 0
    while at + _HEAD.size <= len(data):
        check, length = _HEAD.unpack_from(data, at)
        text = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(text) < length or zlib.crc32(text) != check:
            return
        yield msgspec.msgpack.decode(text)
        at += _HEAD.size + length
