"""An exclusive lock on a directory that may be removed and created again while others wait for it."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from tether.core.errors import ArenaError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "lock"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds


class DirectoryLock:
    """A lock that the kernel releases when its holder dies.

    Args:
        directory: The directory to lock, made when it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, wait: float) -> None:
        """Take the lock.

        Args:
            wait: Seconds to wait for another holder; 0 to try once.

        Raises:
            ArenaError: Another process still holds it.
        """
        if self.held:
            return
        deadline = time.monotonic() + wait
        pause = _FIRST_PAUSE
        while not self._try():
            if time.monotonic() >= deadline:
                raise ArenaError(
                    f"The arena {self._path.parent.name} is in use by process {self._holder()}.",
                    why=f"Its lock was not released within {wait:g} seconds.",
                    do="Wait for that task to end, or end it; make sure that spark.speculation "
                    "is off and that no second query uses the same name.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self) -> bool:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False  # the directory was removed between the two calls
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if not _same_file(descriptor, self._path):
            os.close(descriptor)  # we locked a file that had just been removed
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        return True

    def _holder(self) -> str:
        try:
            return self._path.read_text() or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
