"""What a run leaves behind: processes, arenas in shared memory, locks. Nothing, it should be."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tether.backup.opening import open_store
from tether.core.errors import BackupLockedError
from tether.state.arena import recorded_identity

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "TETHER_RUN_MARK"
"""A variable that all processes of a run inherit, even if a kill gives them another parent."""


class Leftovers:
    """Watches one run; tell its processes by their environment, its arenas by their query.

    Example:
        >>> import subprocess
        >>> left = Leftovers()
        >>> process = subprocess.Popen(
        ...     ["sh", "-c", "echo; read wait"],
        ...     env={**os.environ, **left.environment()},
        ...     stdin=subprocess.PIPE,
        ...     stdout=subprocess.PIPE,
        ... )
        >>> _ = process.stdout.readline()  # it runs
        >>> left.processes() == [process.pid]
        True
        >>> process.kill(); _ = process.wait()
        >>> left.processes()
        []
    """

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    def environment(self) -> dict[str, str]:
        """What to start the run's processes with."""
        return {MARK: self.mark}

    def processes(self) -> list[int]:
        """Processes of the run that live."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    marked = wanted in (entry / "environ").read_bytes().split(b"\0")
                    dead = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                except OSError:
                    continue  # gone, or another user's
                if marked and not dead:
                    found.append(int(entry.name))
        return found

    def processes_after(self, seconds: float) -> list[int]:
        """The same, once they have had time to notice that their parent is gone."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def arenas_of(checkpoint: Path, roots: Iterable[Path] = ()) -> list[Path]:
    """Arenas of the query whose Spark checkpoint this is.

    Args:
        checkpoint: The checkpoint directory: Spark keeps the query's id there.
        roots: Arena directories besides shared memory.
    """
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    places = [Path("/dev/shm"), *roots]  # noqa: S108 - looked at only
    found = []
    for place in places:
        for directory in sorted((place / f"tether-{os.geteuid()}").glob("*")):
            record = recorded_identity(directory) if directory.is_dir() else None
            if record is not None and query in json.dumps(record):
                found.append(directory)
    return found


def is_locked(backup: Path) -> bool:
    """Whether somebody still holds a backup directory."""
    try:
        open_store(str(backup)).lock("looking").release()
    except BackupLockedError:
        return True
    return False
