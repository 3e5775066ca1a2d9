"""Syncs of one file by several threads at a time, none of which hides another one's failure.

Where writing a file back fails, the kernel says so once to everybody who opened the file by a call of
their own, and takes the pages for clean from then on. Two threads that sync through one descriptor would
share that one answer: the first hears of the failure, and the second, a moment later, that all is well.
The second could then call the items of both durable. So each sync goes through a descriptor that was
opened before anything was written, and that nobody else uses meanwhile. And once one of them has failed,
all fail until what was waiting for the disk has been taken back: the descriptor that told of the failure
has nothing more to tell to the next one that takes it.
"""

from __future__ import annotations

import errno
import os
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tether.backup.files import open_file

if TYPE_CHECKING:
    from pathlib import Path

AT_A_TIME = 4
"""Syncs of one file that wait for the disk at a time: three of savers, and one of a producer."""
_CLOSED = -1
"""Stands for the descriptor of a file that is closed for good."""


class SyncedFile:
    """A file that is appended to, and the descriptors by which it is synced.

    Args:
        path: The file.
        descriptor: Of the file, for writing; closed with the rest.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.descriptor = descriptor
        self._failed = False
        self._free: SimpleQueue[int] = SimpleQueue()
        try:
            for _ in range(AT_A_TIME):
                self._free.put(open_file(path, os.O_RDWR))
        except BaseException:
            while not self._free.empty():
                os.close(self._free.get())
            raise

    def sync(self) -> None:
        """Wait until everything that has been written is durable.

        Once the file is closed this returns at once: all was durable then, or had been given up.

        Raises:
            OSError: It is not, or something written since the last sync through this descriptor was not.
        """
        mine = self._free.get()
        try:
            if mine == _CLOSED:
                return
            os.fdatasync(mine)
        except OSError:
            self._failed = True  # before another file can get this descriptor
            raise
        finally:
            self._free.put(mine)
        if self._failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def forgive(self) -> None:
        """What was waiting for the disk has been taken back: what is written from now on may succeed."""
        self._failed = False

    def close(self) -> None:
        """Close the file, once no thread waits for the disk; a thread that comes later does not wait."""
        os.close(self.descriptor)
        for _ in range(AT_A_TIME):
            os.close(self._free.get())
        self._free.put(_CLOSED)
