"""Whose an arena is: what must be the same for its content to be usable."""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tether.state.header import LAYOUT

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FALLBACK_BOOT = uuid.uuid4().hex


def boot_id() -> str:
    """A text that changes when the machine is started again.

    Where the kernel gives none, one that changes with every process: then resident state is never
    found again, which is safe.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _FALLBACK_BOOT


@dataclass(frozen=True)
class Identity:
    """All that an arena's content depends on. Any difference makes it unusable."""

    query: str
    """Name or id of the query, unique on this node."""
    operator: str
    slot: int
    slots: int
    """Number of slots of the operator: with another number keys belong elsewhere."""
    fingerprint: str
    """Of the program: operator code, state schema, policy."""
    boot: str = field(default_factory=boot_id)
    layout: int = LAYOUT

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def difference(self, other: dict[str, Any]) -> str:
        """Why an arena of another identity cannot be used; empty if it is the same."""
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), other.get(entry.name)
            if mine != theirs:
                return f"{_MEANING[entry.name]} ({theirs!r} there, {mine!r} here)"
        return ""


_MEANING = {
    "query": "it belongs to another query",
    "operator": "it belongs to another operator",
    "slot": "it belongs to another slot",
    "slots": "the operator had another number of slots",
    "fingerprint": "the program has changed",
    "boot": "the machine was started again since",
    "layout": "it was written by another version of Tether",
}


@dataclass(frozen=True)
class Owner:
    """The process that an arena must not outlive: an executor, by number and start time."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Owner:
        """The process that has this number now."""
        return cls(pid, _start_time(pid))

    def alive(self) -> bool:
        """Whether that process, not another with the same number, still runs."""
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
