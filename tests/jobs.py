"""A query in a process of its own, which may be killed: how it is run, and how it says its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from tests.spark.commands import LONGEST_SECONDS

from tether.testing.processes import kill, kill_all

if TYPE_CHECKING:
    from tether.testing.leftovers import Leftovers

_RESULT = "job: "


class Ended(NamedTuple):
    """How a job ended."""

    result: dict[str, Any] | None
    """What it said; None where it was killed or failed."""
    outlived: list[int]
    """Processes that were still there long after it; they are killed."""


def run_job(
    module: str, order: msgspec.Struct, work: Path, left: Leftovers, **environment: str
) -> Ended:
    """Run a module as a program, with an order in JSON as its argument; what it logs is in ``work/log``.

    Args:
        module: Its name; it calls :func:`say` at its end.
        order: What it is to do.
        work: Its folder.
        left: Looks after what it leaves.
        environment: Variables beside this process's.
    """
    with (work / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, msgspec.json.encode(order).decode()],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, **left.environment(), **environment},
        )
        try:
            said, _ = process.communicate(timeout=2 * LONGEST_SECONDS)
        finally:
            kill_all(process.pid)
            process.wait()
    outlived = list(left.processes_after(120))
    for pid in outlived:
        kill(pid)
    results = [line for line in said.splitlines() if line.startswith(_RESULT)]
    return Ended(json.loads(results[-1].removeprefix(_RESULT)) if results else None, outlived)


def say(result: dict[str, Any]) -> None:
    """In the process: what came of it."""
    print(_RESULT + json.dumps(result), flush=True)
