"""Where a slot keeps its segments: one directory of an arena, or the heap of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from tether.state.segment import FileSegment, HeapSegment, Segment, private_segment

if TYPE_CHECKING:
    from pathlib import Path


class Store(Protocol):
    """Named segments and small texts of one slot."""

    def segment(self, name: str, dtype: str, width: int = 0, *, slack: bool = True) -> Segment:
        """Open a segment, made empty if there is none of that name.

        Args:
            name: Name within the store.
            dtype: NumPy type of the items.
            width: Items per element; 0 for a one-dimensional segment.
            slack: Whether to allocate somewhat more than asked, for cheap growth.
        """

    def write_text(self, name: str, text: str) -> None:
        """Store a text: all of it or, after a kill, nothing of it."""

    def read_text(self, name: str) -> str:
        """The text of that name."""

    def exists(self, name: str) -> bool:
        """Whether there is a segment or text of that name."""

    def names(self, prefix: str) -> list[str]:
        """Names of segments and texts that start with ``prefix``."""

    def remove(self, name: str) -> None:
        """Free a segment or text; nothing happens if it is not there."""

    def allocated(self) -> int:
        """Bytes of memory held by all segments."""


class HeapStore:
    """Segments in this process's own memory; gone when the process ends."""

    def __init__(self) -> None:
        self._segments: dict[str, HeapSegment] = {}
        self._texts: dict[str, str] = {}

    def segment(self, name: str, dtype: str, width: int = 0, *, slack: bool = True) -> Segment:
        """Open a segment, made empty if there is none of that name."""
        del slack  # the heap always grows by a half: growing there is a copy
        if name not in self._segments:
            self._segments[name] = HeapSegment(dtype, width)
        return self._segments[name]

    def copy(self) -> HeapStore:
        """The same content, in memory of its own."""
        other = HeapStore()
        other._segments = {name: segment.copy() for name, segment in self._segments.items()}
        other._texts = dict(self._texts)
        return other

    def adopt(self, name: str, segment: HeapSegment) -> None:
        """Keep a segment that was made elsewhere under a name of this store."""
        self._segments[name] = segment

    def write_text(self, name: str, text: str) -> None:
        """Store a text."""
        self._texts[name] = text

    def read_text(self, name: str) -> str:
        """The text of that name."""
        return self._texts[name]

    def exists(self, name: str) -> bool:
        """Whether there is a segment or text of that name."""
        return name in self._segments or name in self._texts

    def names(self, prefix: str) -> list[str]:
        """Names of segments and texts that start with ``prefix``."""
        return [name for name in [*self._segments, *self._texts] if name.startswith(prefix)]

    def remove(self, name: str) -> None:
        """Free a segment or text."""
        self._segments.pop(name, None)
        self._texts.pop(name, None)

    def allocated(self) -> int:
        """Bytes of memory held by all segments."""
        return sum([segment.allocated for segment in self._segments.values()])


class FileStore:
    """Segments as memory-mapped files of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def segment(self, name: str, dtype: str, width: int = 0, *, slack: bool = True) -> Segment:
        """Open a segment, made empty if there is none of that name."""
        return FileSegment(self.directory / name, dtype, width, slack=slack)

    def write_text(self, name: str, text: str) -> None:
        """Store a text; the rename makes it appear whole or not at all."""
        draft = self.directory / f"{name}.draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(self.directory / name)

    def read_text(self, name: str) -> str:
        """The text of that name."""
        return (self.directory / name).read_text(encoding="utf-8")

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.directory / name).exists()

    def names(self, prefix: str) -> list[str]:
        """Names of files that start with ``prefix``."""
        return [path.name for path in self.directory.iterdir() if path.name.startswith(prefix)]

    def remove(self, name: str) -> None:
        """Unlink a file; memory is freed when the last mapping of it is gone."""
        (self.directory / name).unlink(missing_ok=True)

    def allocated(self) -> int:
        """Bytes of memory held by all files, as the file system counts them."""
        with os.scandir(self.directory) as entries:
            return sum(entry.stat().st_blocks * 512 for entry in entries)


class PrivateStore:
    """A view of an arena's files in which changes stay in this process: copy on write.

    The files are mapped privately, so the pages that are changed are the only ones copied. Whatever
    happens to this process, the files are as they were. The holder of the view must keep the arena's
    lock: a page that was not changed here still shows what another process writes to the file.

    Args:
        directory: The arena's.
    """

    def __init__(self, directory: Path) -> None:
        self._files = FileStore(directory)
        self._heap = HeapStore()
        self._removed: set[str] = set()

    def segment(self, name: str, dtype: str, width: int = 0, *, slack: bool = True) -> Segment:
        """Open a segment: the file's content as it is now, or an empty one."""
        if not self._heap.exists(name) and self._on_file(name):
            self._heap.adopt(name, private_segment(self._files.directory / name, dtype, width))
        return self._heap.segment(name, dtype, width, slack=slack)

    def _on_file(self, name: str) -> bool:
        return name not in self._removed and self._files.exists(name)

    def write_text(self, name: str, text: str) -> None:
        """Store a text, here only."""
        self._heap.write_text(name, text)

    def read_text(self, name: str) -> str:
        """The text of that name."""
        return (self._heap if self._heap.exists(name) else self._files).read_text(name)

    def exists(self, name: str) -> bool:
        """Whether there is a segment or text of that name."""
        return self._heap.exists(name) or self._on_file(name)

    def names(self, prefix: str) -> list[str]:
        """Names of segments and texts that start with ``prefix``."""
        on_file = set(self._files.names(prefix)) - self._removed
        return sorted(on_file | set(self._heap.names(prefix)))

    def remove(self, name: str) -> None:
        """Forget a segment or text, here only."""
        self._removed.add(name)
        self._heap.remove(name)

    def allocated(self) -> int:
        """Bytes of memory that all segments show, copied or not."""
        return self._heap.allocated()
