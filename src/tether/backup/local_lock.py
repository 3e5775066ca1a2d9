"""One driver at a time on a local backup directory, by the kernel's file lock."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from tether.backup.files import explained, open_file, try_lock
from tether.backup.protocol import HeldLock
from tether.core.errors import BackupError, BackupLockedError
from tether.process import Owner, process_numbers

if TYPE_CHECKING:
    from pathlib import Path


class LockOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a store's lock, for the error message of the next one."""

    owner: str
    pid: int
    host: str
    started_at: float
    """Unix seconds."""
    numbers: str = ""
    """The process namespace of that number; see :func:`tether.process.process_numbers`."""
    process_started: str = ""
    """By the kernel's clock; distinguishes it from a later process with the same number."""

    @classmethod
    def here(cls, owner: str) -> LockOwner:
        """This process."""
        return cls(
            owner=owner,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=time.time(),
            numbers=process_numbers(),
            process_started=Owner.of(os.getpid()).started,
        )

    def surely_dead(self) -> bool:
        """Whether the process is known to have ended; for other machines this is never known."""
        here = bool(self.process_started) and self.numbers == process_numbers()
        return here and not Owner(self.pid, self.process_started).alive()

    def described(self) -> str:
        """One phrase for messages."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.started_at))
        return f"{self.owner!r}, process {self.pid} on {self.host}, since {since}"


def locked_error(place: str, holder: str) -> BackupLockedError:
    """The error for the second query on one store."""
    return BackupLockedError(
        f"Another query uses the backup store {place}.",
        why=f"It is held by {holder}.",
        do="Stop that query, or give this one a backup directory of its own.",
    )


class LocalLock(HeldLock):
    """An ``flock`` on the store's ``lock`` file.

    Guaranteed: at most one holder among all processes of the machine, two queries of one process
    included; released by the kernel when the holder dies, in whatever way. On a network file system it
    holds across machines only if that file system's locks do. A child made by a bare ``fork`` shares its
    parent's lock until both have ended; programs started by ``subprocess`` do not.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        what = f"The backup directory {path.parent} cannot be locked."
        with explained(what, path):
            descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            with explained(what, path):
                if not try_lock(descriptor):
                    raise locked_error(str(path.parent), self._holder(descriptor))
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, msgspec.json.encode(LockOwner.here(owner)), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor: int | None = descriptor

    @staticmethod
    def _holder(descriptor: int) -> str:
        try:
            return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=LockOwner).described()
        except (msgspec.MsgspecError, ValueError, OSError):
            return "a process that has not yet said its name"

    def check(self) -> None:
        """Raise unless the lock is held, and its file is still the one that others would lock."""
        if self._descriptor is None:
            raise BackupLockedError(
                "The lock of the backup store was given up.",
                why="The query that held it has stopped.",
                do="Take the lock again.",
            )
        ours = os.fstat(self._descriptor)
        with contextlib.suppress(OSError):
            theirs = self._path.stat()
            if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino):
                return
        raise BackupError(
            f"The backup directory {self._path.parent} was removed or replaced.",
            why="Its lock file is not the one that this query locked when it started.",
            do="Stop the query; put the directory back, or start again with an empty one.",
        )

    def release(self) -> None:
        """Release the lock; does nothing if it has been released."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
