"""Processes that stand for executors: they do nothing, but resident state can die with them."""

from __future__ import annotations

import os
import shutil
import signal

from tether.state import executor

_WAITS = shutil.which("cat") or "/bin/cat"
"""Reads until nobody can write to it any more."""


class Executors:
    """A fixed number of executors; one that dies is replaced.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        self._ends: dict[int, int] = {}
        self._live = [self._start() for _ in range(number)]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._live)

    def of(self, slot: int) -> int:
        """Process id of the executor that holds a slot; a new one where the last has died."""
        at = slot % len(self._live)
        if _has_ended(self._live[at]):
            self._bury(self._live[at])
            self._live[at] = self._start()
        return self._live[at]

    def kill(self, slot: int) -> None:
        """SIGKILL the executor that holds a slot; it is dead when this returns."""
        pid = self.of(slot)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def serve(self, slot: int) -> int:
        """Let this process be a Python worker of the executor that holds a slot."""
        executor.stand_in = self.of(slot)
        return executor.stand_in

    def end(self) -> None:
        """Let all of them go."""
        for pid in list(self._ends):
            self._bury(pid)

    def _start(self) -> int:
        # A program of its own, which holds nothing but the pipe and waits for its end: a lock that it
        # shared would outlive its holder. And a fork would copy all that this process has imported.
        ours, theirs = os.pipe()
        at_end = (os.POSIX_SPAWN_DUP2, ours, 0)
        pid = os.posix_spawn(_WAITS, [_WAITS], {}, file_actions=[at_end])
        os.close(ours)
        self._ends[pid] = theirs
        return pid

    def _bury(self, pid: int) -> None:
        os.close(self._ends.pop(pid))
        os.waitpid(pid, 0)


def _has_ended(child: int) -> bool:
    """Whether a child is dead, buried or not yet."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
