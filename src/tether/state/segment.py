"""Growable typed arrays, in memory-mapped files or on the heap.

Resident state outlives the Python worker that wrote it because its arrays are files in a RAM-backed
directory, mapped into the worker that runs the slot's next epoch. A file is *allocated* in small
steps (so that memory follows the state) but *mapped* up to twice as far (so that growing seldom
needs a new mapping). Pages are always allocated before they are touched: a full file system raises
``ArenaError``; it never ends the process with a bus error.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tether.core.errors import ArenaError

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]

_PRELUDE = 64  # bytes before the data; the first word holds the allocated data bytes
_PAGE = mmap.PAGESIZE
_GROWTH = 8  # grow by 1/8: at most that share of the memory is ever unused
_ALLOCATED = 0  # index of that word


class Segment(Protocol):
    """A one- or two-dimensional array that can grow in its first dimension."""

    data: Array
    """View of all allocated elements. Take it again after every ``ensure``."""

    def ensure(self, length: int) -> None:
        """Make room for ``length`` elements; elements never used before are zero."""

    def trim(self, length: int) -> None:
        """Give memory beyond ``length`` elements back. What lay there is lost."""

    def refresh(self) -> None:
        """See elements that another process has made room for."""

    @property
    def allocated(self) -> int:
        """Bytes of memory held."""


class HeapSegment:
    """A segment in this process's own memory: for batch runs, dry runs and the simulator."""

    def __init__(self, dtype: str, width: int = 0, data: Array | None = None) -> None:
        self._width = width
        self.data: Array = np.zeros(self._shape(0), dtype) if data is None else data
        self.allocated = int(self.data.nbytes)
        """Bytes of memory held."""

    def _shape(self, length: int) -> tuple[int, ...]:
        return (length, self._width) if self._width else (length,)

    def copy(self) -> HeapSegment:
        """The same content, in memory of its own."""
        return HeapSegment(self.data.dtype.str, self._width, self.data.copy())

    def ensure(self, length: int) -> None:
        """Make room for ``length`` elements."""
        have = len(self.data)
        if length > have:
            grown = np.zeros(self._shape(max(length, have + have // 2, 64)), self.data.dtype)
            grown[:have] = self.data
            self.data, self.allocated = grown, int(grown.nbytes)

    def trim(self, length: int) -> None:
        """Give memory beyond ``length`` elements back."""
        if length < len(self.data):
            self.data = self.data[:length].copy()
            self.allocated = int(self.data.nbytes)

    def refresh(self) -> None:
        """Nothing to do: no other process can have changed it."""


class FileSegment:
    """A segment in a memory-mapped file. Views of it stay valid, and coherent, after it grew."""

    def __init__(self, path: Path, dtype: str, width: int = 0, *, slack: bool = True) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._width = width
        self._slack = slack
        self._stride = self._dtype.itemsize * (width or 1)
        self._open_or_create()

    def _open_or_create(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size < _PRELUDE:  # new, or its creator was killed before this line
                self._allocate(descriptor, size, _PRELUDE)
            self._map(descriptor)
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int) -> None:
        self._mapping = mmap.mmap(descriptor, 0)
        self._prelude = memoryview(self._mapping)[:_PRELUDE].cast("q")
        self._slice()

    def _slice(self) -> None:
        self._allocated = self._prelude[_ALLOCATED]
        self._capacity = self._allocated // self._stride
        flat = np.frombuffer(
            self._mapping, self._dtype, self._capacity * (self._width or 1), _PRELUDE
        )
        self.data = flat.reshape(-1, self._width) if self._width else flat

    def ensure(self, length: int) -> None:
        """Make room for ``length`` elements.

        Raises:
            ArenaError: The file system of the arena is full. Nothing has changed.
        """
        if length <= self._capacity:
            return
        step = self._allocated // _GROWTH if self._slack else 0
        total = _pages(_PRELUDE + max(length * self._stride, self._allocated + step))
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._allocate(descriptor, _PRELUDE + self._allocated, total)
            if total > len(self._mapping):
                if self._slack:
                    # A hole costs nothing; it lets the file grow under this mapping.
                    _extend(descriptor, 2 * total)
                self._map(descriptor)
        finally:
            os.close(descriptor)
        self._prelude[_ALLOCATED] = total - _PRELUDE
        self._slice()

    def _allocate(self, descriptor: int, start: int, total: int) -> None:
        try:
            allocate(descriptor, start, total)
        except OSError as error:
            room = os.statvfs(self._path.parent)
            raise ArenaError(
                f"The arena has no room: {self._path.name} needs {total:,} bytes.",
                why=f"{error.strerror}; {room.f_bavail * room.f_frsize:,} bytes are free.",
                do="Give the arena a larger file system, raise parallelism over more nodes, "
                "or set another arena directory.",
            ) from error

    def trim(self, length: int) -> None:
        """Give memory beyond ``length`` elements back, keeping the mapping."""
        total = _pages(_PRELUDE + length * self._stride)
        if total - _PRELUDE >= self._allocated:
            return
        self._prelude[_ALLOCATED] = total - _PRELUDE
        self._slice()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, total)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def refresh(self) -> None:
        """Follow a growth or trim by another process; below a microsecond if there was none."""
        allocated = self._prelude[_ALLOCATED]
        if allocated == self._allocated:
            return
        if allocated + _PRELUDE > len(self._mapping):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._map(descriptor)
            finally:
                os.close(descriptor)
        else:
            self._slice()

    @property
    def allocated(self) -> int:
        """Bytes of memory held."""
        return _pages(self._allocated + _PRELUDE)


def private_segment(path: Path, dtype: str, width: int = 0) -> HeapSegment:
    """The content of a segment's file, in which changes are seen by this process only.

    Pages are shared with the file until they are changed; growing it copies all of it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size < _PRELUDE:  # its creator was killed before it had any
            return HeapSegment(dtype, width)
        mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(descriptor)
    items = memoryview(mapping)[:_PRELUDE].cast("q")[_ALLOCATED] // np.dtype(dtype).itemsize
    flat = np.frombuffer(mapping, dtype, items - items % (width or 1), _PRELUDE)
    return HeapSegment(dtype, width, flat.reshape(-1, width) if width else flat)


def allocate(descriptor: int, start: int, stop: int) -> None:
    """Back the unused bytes ``start`` to ``stop`` of a file with real memory, or raise OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, stop - start)
        return
    while start < stop:  # a platform without fallocate: writing allocates as well
        start += os.pwrite(descriptor, bytes(min(stop - start, 1 << 20)), start)


def _extend(descriptor: int, size: int) -> None:
    try:
        os.ftruncate(descriptor, max(size, os.fstat(descriptor).st_size))
    except OSError:
        return  # a limit on file sizes: then the next growth maps it again


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
