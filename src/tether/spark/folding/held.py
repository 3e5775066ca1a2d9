"""Folded rows that the driver holds for the tasks of its own machine, in memory and under no name.

With one executor, slots' tasks are on the driver's machine. So rows that it has folded itself need no
shuffle: they lie in an anonymous file in memory, and a task maps those of its slot. The file is gone
with the driver, however that ends; what is there for nobody any more is closed an epoch later.
"""

from __future__ import annotations

import os
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tether.sources.folding.fold import CannotFoldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ALIGNMENT = 64
"""Where Arrow wants its numbers to begin."""

KEPT = 2
"""Epochs whose rows are held: the newest, and one that somebody may still be looking at."""


class Held(NamedTuple):
    """A parcel in a driver's memory."""

    path: str
    token: bytes
    """What its file begins with: names of closed files are used again."""
    start: int
    length: int

    def taken(self) -> pa.Buffer:
        """Its bytes, where they are.

        Raises:
            CannotFoldError: The driver's memory cannot be seen from here.
        """
        try:
            with pa.memory_map(self.path) as file:
                token = file.read(len(self.token))
                file.seek(self.start)
                parcel = file.read_buffer(self.length)
        except (OSError, pa.ArrowException) as error:
            raise CannotFoldError("A parcel cannot be read.", why=str(error)) from error
        if token != self.token or len(parcel) != self.length:
            raise CannotFoldError("A parcel cannot be read.", why="It is no longer held.")
        return parcel


def can_hold() -> bool:
    """Whether this system has files in memory that other processes can open."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


class Holder:
    """Holds the parcels of the newest epochs.

    Example:
        >>> holder = Holder()
        >>> held = holder.hold({0: [b"some", b"rows"]})
        >>> [one.taken().to_pybytes() for one in held[0]]
        [b'some', b'rows']
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        weakref.finalize(self, _close, self._files)

    def hold(self, parcels: Mapping[int, Sequence[bytes]]) -> dict[int, tuple[Held, ...]]:
        """Keep the parcels of an epoch; those of an epoch long past are let go.

        Raises:
            CannotFoldError: There is no memory for them, or this process has too many open files.
        """
        try:
            return self._hold(parcels)
        except OSError as error:
            raise CannotFoldError("Folded rows cannot be held.", why=str(error)) from error

    def _hold(self, parcels: Mapping[int, Sequence[bytes]]) -> dict[int, tuple[Held, ...]]:
        file = os.memfd_create("tether-parcels")
        self._files.append(file)
        while len(self._files) > KEPT:
            os.close(self._files.pop(0))
        path, token = f"/proc/{os.getpid()}/fd/{file}", uuid.uuid4().bytes
        found: dict[int, tuple[Held, ...]] = {}
        _write(file, token, 0)
        start = _ALIGNMENT
        for slot, mine in parcels.items():
            held = []
            for parcel in mine:
                _write(file, parcel, start)
                held.append(Held(path, token, start, len(parcel)))
                start = -(-(start + len(parcel)) // _ALIGNMENT) * _ALIGNMENT
            found[slot] = tuple(held)
        return found


def _write(file: int, data: bytes, start: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, start)
        view, start = view[written:], start + written


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())
