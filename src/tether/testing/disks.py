"""A disk so small that it can be filled: what a query does when there is no room left."""

from __future__ import annotations

import contextlib
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK = 64 << 10


@dataclass
class SmallDisk:
    """A file system of its own.

    Attributes:
        path: Where it is mounted.
    """

    path: Path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all room but ``leave_bytes``."""
        with self._filler.open("ab", buffering=0) as filler:
            while (room := self._free() - leave_bytes) > 0:
                try:
                    filler.write(b"\0" * min(_CHUNK, room))
                except OSError:  # others write, too
                    break

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    def _free(self) -> int:
        info = os.statvfs(self.path)
        return info.f_bavail * info.f_frsize


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a disk of ``size`` bytes in memory at ``path``; unmount it at the end of the block.

    Raises:
        TetherError: This user may not mount.
    """
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={int(size)},mode=0700", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise TetherError(
            "A small disk cannot be mounted here.",
            why=done.stderr.strip(),
            do="Run as a user that may mount, or leave this fault out.",
        )
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: a process that is about to end may still have a file of it open.
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S603, S607
        with contextlib.suppress(OSError):
            path.rmdir()
