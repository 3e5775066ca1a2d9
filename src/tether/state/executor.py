"""Which executor this Python worker belongs to."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tether.state.identity import Owner


stand_in: int | None = None
"""What stands for the executor of this process, where Spark has not started it."""


def parent_of(pid: int) -> int:
    """Parent process id; 0 if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The command name may hold spaces and parentheses; fields are counted after its last one.
    return int(stat.rsplit(")", 1)[1].split()[1])


def executor_process() -> int:
    """Process id of the executor's JVM that this Python worker serves.

    Spark starts one Python daemon per executor, and the daemon forks the workers: the executor is
    the grandparent.
    """
    return parent_of(os.getppid()) if stand_in is None else stand_in


def executor_name(owner: Owner) -> str:
    """A name for the executor that no other, earlier or later, has on this host."""
    return f"{socket.gethostname()}:{owner.pid}:{owner.started}"
