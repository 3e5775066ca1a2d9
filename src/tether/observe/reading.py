"""Reads a feed that another process wrote, or writes still, beside its backups."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from tether.backup.files import open_file
from tether.backup.objectio import ObjectFolder
from tether.backup.places import local_path
from tether.core.errors import BadValueError
from tether.observe.feed import Feed
from tether.observe.segments import FOLDER, SUFFIX, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOK_SECONDS = 0.5
"""Between two looks at a directory that is followed."""
LOOK_SECONDS_FAR = 5.0


class FeedReader:
    """A feed as far as its files tell; ``look`` goes on where the last look ended.

    Args:
        url: The backup directory or URL.
        options: Of the store's file system.
        feed: A feed that is to recall what is there; by default a new one.

    Example:
        >>> import tempfile
        >>> reader = FeedReader(tempfile.mkdtemp())
        >>> reader.look(), reader.feed.version
        (0, 0)
    """

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, feed: Feed | None = None
    ) -> None:
        self.url = url
        self.feed = feed if feed is not None else Feed()
        self.bad = 0
        """Lines that could not be read."""
        self._path = local_path(url)
        if self._path is None:
            self._far = ObjectFolder(f"{url.rstrip('/')}/{FOLDER}", options or {})
        elif options:
            raise BadValueError(
                f"A local backup directory takes no storage options, but {url!r} was given some.",
                do="Leave them out, or use the URL of an object store.",
            )
        self._read: dict[str, int] = {}
        self._stop = threading.Event()

    def look(self) -> int:
        """Take in what was written since the last look; tell how many facts that were."""
        before = self.feed.version
        found = self._files() if self._path is not None else self._objects()
        for name, data in found:
            lines = read_lines(data)
            self._read[name] = self._read.get(name, 0) + lines.used
            self.bad += lines.bad
            for fact in lines.facts:
                self.feed.recall(fact)
        return self.feed.version - before

    def follow(self) -> threading.Thread:
        """Look again and again, on a thread of its own, until ``stop``."""
        pause = LOOK_SECONDS if self._path is not None else LOOK_SECONDS_FAR

        def work() -> None:
            while not self._stop.wait(pause):
                self.look()

        thread = threading.Thread(target=work, name="tether-feed-reader", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End following."""
        self._stop.set()

    def _files(self) -> list[tuple[str, bytes]]:
        assert self._path is not None
        found = []
        for path in sorted((self._path / FOLDER).glob(f"*{SUFFIX}")):
            data = _rest(path, self._read.get(path.name, 0))
            if data:
                found.append((path.name, data))
        return found

    def _objects(self) -> list[tuple[str, bytes]]:
        sizes = self._far.sizes()
        grown = sorted(
            name
            for name, size in sizes.items()
            if name.endswith(SUFFIX) and size > self._read.get(name, 0)
        )
        read = self._far.read_many(grown)
        return [(name, data[self._read.get(name, 0) :]) for name, data in read.items() if data]


def _rest(path: Path, start: int) -> bytes:
    """What a file holds beyond ``start``; nothing where it is gone, or no plain file."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, size - start, start) if size > start else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
