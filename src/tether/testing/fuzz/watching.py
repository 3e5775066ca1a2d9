"""Waiting for a child that may hang, on a machine that may be busy.

A clock on the wall cannot tell one from the other: on a busy machine, or one that was paused, everything
takes long. So a child hangs if it has worked for longer than any should, or if nobody in its tree of
processes has done anything, or wanted to, at many looks in a row.
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")
_WANTS_TO_WORK = "RD"
"""States of a process that has the processor or waits for it, or for a disk."""


@dataclass(frozen=True)
class Patience:
    """When a child hangs.

    Attributes:
        look_seconds: Time from one look at it to the next.
        idle_looks: Number of looks in a row that may find it doing nothing.
        cpu_seconds: So much may all of its processes work.
    """

    look_seconds: float = 1.0
    idle_looks: int = 60
    cpu_seconds: float = 60.0


def waited(pid: int, patience: Patience = Patience()) -> int:  # noqa: B008 - frozen
    """Wait for a child.

    Returns:
        Its exit status; negative for the signal that ended it, and for SIGALRM if it hung.
    """
    end = os.pidfd_open(pid)
    try:
        hung = not _ends(end, pid, patience)
    finally:
        os.close(end)
    if hung:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if hung:
        return -signal.SIGALRM
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _ends(end: int, pid: int, patience: Patience) -> bool:
    """Whether it ends by itself."""
    watch = select.poll()  # select() knows no descriptor above 1023, and a test run has many
    watch.register(end, select.POLLIN)
    idle, before = 0, -1.0
    while not watch.poll(1000 * patience.look_seconds):
        worked, wants = _work(pid)
        idle = 0 if wants or worked != before else idle + 1
        before = worked
        if idle >= patience.idle_looks or worked > patience.cpu_seconds:
            return False
    return True


def _work(pid: int) -> tuple[float, bool]:
    """Seconds that a tree of processes has worked, and whether one of its threads wants to work now."""
    seconds, wants = 0.0, False
    for each in _tree(pid):
        try:
            fields = _fields(Path(f"/proc/{each}/stat"))
            threads = [_fields(file) for file in Path(f"/proc/{each}/task").glob("*/stat")]
        except OSError:
            return seconds, True  # something has just ended: that is work
        seconds += sum(map(int, fields[11:15])) / _TICKS  # with children that it has buried
        wants = wants or any(thread[0] in _WANTS_TO_WORK for thread in threads)
    return seconds, wants


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except OSError:
            continue
        for child in found:
            yield from _tree(int(child))


def _fields(stat: Path) -> list[str]:
    """State and later fields of a process or thread; its name may hold blanks and brackets."""
    return stat.read_text().rpartition(")")[2].split()
