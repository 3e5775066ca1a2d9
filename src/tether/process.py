"""Which process is meant, so that no other one, earlier, later or elsewhere, is taken for it."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_NUMBERS = Path("/proc/self/ns/pid")
_FALLBACK_BOOT = uuid.uuid4().hex


def boot_id() -> str:
    """A text that changes when the machine is started again.

    Where the kernel gives none, one that changes with every process: then nothing that an earlier
    process left is taken for ours, which is safe.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _FALLBACK_BOOT


def process_numbers() -> str:
    """A text that is the same for two processes only if a process number means the same to both.

    Containers of one machine may share its name and its boot, and still number their processes each for
    itself.
    """
    try:
        return f"{boot_id()} {_PROCESS_NUMBERS.readlink()}"
    except OSError:
        return _FALLBACK_BOOT


@dataclass(frozen=True)
class Owner:
    """A process that something must not outlive, by number and start time."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Owner:
        """The process that has this number now."""
        return cls(pid, _start_time(pid))

    def alive(self) -> bool:
        """Whether that process, not another with the same number, still runs."""
        if self.pid <= 0:
            return False  # no process; as an address of signals it is a group of them
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # there is one, of another user
        return _start_time(self.pid) == self.started


def _start_time(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    after_command = stat.rpartition(")")[2].split()
    if after_command[0] == "Z":
        return "ended"  # not reaped yet, but dead
    return after_command[19]
