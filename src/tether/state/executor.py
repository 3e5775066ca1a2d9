"""Which executor this Python worker belongs to."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tether.core.errors import ArenaError
from tether.state.identity import Owner

stand_in: int | None = None
"""Used as the executor of this process if Spark has not started it."""


def parent_of(pid: int) -> int:
    """Parent process id; 0 if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The command name may hold spaces and parentheses; fields are counted from its last parenthesis on.
    return int(stat.rsplit(")", 1)[1].split()[1])


_known: dict[int, Owner] = {}
"""The executor of each worker, by the number of its own process: a fork has another one."""


def own_executor() -> Owner:
    """The executor's JVM that this Python worker serves.

    Spark starts one Python daemon per executor, and the daemon forks the workers: the executor is
    the grandparent. It is looked up once. When the daemon dies, Spark goes on with the workers that
    are idle; they have another parent by then, but serve the same executor.

    Raises:
        ArenaError: The daemon died before this worker's first task.
    """
    if stand_in is not None:
        return Owner.of(stand_in)
    me = os.getpid()
    if me not in _known:
        executor = parent_of(os.getppid())
        if not executor:
            raise ArenaError(
                "This Python worker does not know its executor.",
                why="Spark's Python daemon, which started it, died before its first task.",
                do="Nothing: Spark runs the task again in another worker.",
            )
        _known[me] = Owner.of(executor)
    return _known[me]


def executor_name(owner: Owner) -> str:
    """A name for the executor that no other, earlier or later, has on this host."""
    return f"{socket.gethostname()}:{owner.pid}:{owner.started}"
