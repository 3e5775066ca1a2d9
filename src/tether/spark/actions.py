"""What a running query can be asked for by its live page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.spark.query import Query


def offer_actions(query: Query, *, snapshots: bool, heals: bool) -> None:
    """Let a page ask the query for what it can do.

    Args:
        query: The query.
        snapshots: Whether its policy takes any.
        heals: Whether losses under its policy are healed.
    """
    actions: dict[str, Callable[[], str]] = {}
    if snapshots:

        def snapshot() -> str:
            query.snapshot()
            return "A snapshot begins with the next epoch."

        actions["snapshot"] = snapshot
    if heals:

        def heal() -> str:
            return "A twin heals the answer." if query.heal() else "There is nothing to heal."

        actions["heal"] = heal
    actions["drill"] = drill
    query.feed.offer(actions)


def drill() -> str:
    """Kill one process of this driver's application on this machine: an executor, or a Python worker.

    Raises:
        BadValueError: There is no such process.
    """
    from tether.testing.processes import (  # noqa: PLC0415 - only for this
        command_of,
        descendants,
        kill,
        python_workers,
    )

    pid = os.getpid()
    executors = [p for p in descendants(pid) if "CoarseGrainedExecutorBackend" in command_of(p)]
    for kind, victims in (("an executor", executors), ("a Python worker", python_workers(pid))):
        if victims and kill(victims[-1]):
            return f"Killed {kind}, process {victims[-1]}. Watch the failures."
    raise BadValueError(
        "There is nothing to kill here.",
        why="No executor or Python worker of this application runs on the driver's machine.",
        do="Use tether drill strike on a machine where they run.",
    )
