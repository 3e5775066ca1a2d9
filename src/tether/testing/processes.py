"""Processes that a command has started: finding them, and ending them as a failure would."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tether.spark.session import WARM_DAEMON
from tether.state.executor import parent_of


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, as they are now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found += front
    return found


def command_of(pid: int) -> str:
    """Command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def python_workers(pid: int) -> list[int]:
    """Python workers of the Spark application that ``pid`` drives: children of its daemons."""
    below = descendants(pid)
    daemons = {child for child in below if _is_python(command_of(child))}
    return [child for child in daemons if parent_of(child) in daemons]


def _is_python(command: str) -> bool:
    """Whether it is Spark's Python daemon, its own or ours, or one of its workers.

    Not every command that names the daemon is one: Spark's JVM has it among its settings.
    """
    return any(f" -m {daemon} " in f"{command} " for daemon in ("pyspark.daemon", WARM_DAEMON))


def kill(pid: int) -> bool:
    """SIGKILL; False if the process was gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_all(pid: int) -> int:
    """SIGKILL a process and everything below it, the children first noted, then all struck."""
    victims = [pid, *descendants(pid)]
    return sum(kill(victim) for victim in victims)
