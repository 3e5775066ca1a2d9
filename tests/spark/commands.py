"""The ``tether`` command as a process of its own, for tests that kill it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from tether.testing.leftovers import Leftovers, arenas_of, is_locked
from tether.testing.processes import kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tether.chaos.faults import Fault

LONGEST_SECONDS = 400


def from_the_start(executors: int) -> dict[str, str]:
    """Settings with which all executors, of a core each, are there before the first epoch.

    A query spreads its slots over those that came within a second or two of each other; a busy machine
    may start them further apart.
    """
    return {
        "spark.cores.max": str(executors),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LONGEST_SECONDS}s",
    }


class QueryFolder:
    """What a query in processes of its own, and in a folder of its own, leaves there."""

    work: Path
    """Has its checkpoint, its backup and its log."""
    arena_roots: tuple[Path, ...] = ()
    """Arena directories besides shared memory."""

    def left_behind(self) -> list[object]:
        """Arenas and locks of this query that are still there."""
        left: list[object] = [*arenas_of(self.work / "checkpoint", self.arena_roots)]
        if is_locked(self.work / "backup"):
            left.append("the backup directory is locked")
        return left

    def log(self) -> str:
        """The end of what it has logged."""
        return (self.work / "log").read_text()[-4000:]


@dataclass
class Counting(QueryFolder):
    """``tether run counts`` on fixed directories; run it again to go on where it stopped."""

    work: Path
    policy: str
    master: str = "local[2,4]"
    arena_scope: str = "executor"
    slots: int = 2
    conf: dict[str, str] = field(default_factory=dict)
    left: Leftovers = field(default_factory=Leftovers)

    def run(self, faults: list[Fault] = []) -> dict[str, Any] | None:  # noqa: B006 - never changed
        """The command's JSON; None where it died or was killed."""
        with self.started(faults) as process:
            return self.finish(process)

    def finish(self, process: subprocess.Popen[str]) -> dict[str, Any] | None:
        """Wait for a started command; its JSON, or None where it died or was killed."""
        said, _ = process.communicate(timeout=LONGEST_SECONDS)
        return json.loads(said.splitlines()[-1]) if process.returncode == 0 else None

    def await_epochs(self, epochs: int, process: subprocess.Popen[str]) -> None:
        """Wait until Spark has committed so many epochs."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while self.epochs_committed() < epochs:
            assert process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    @contextmanager
    def started(self, faults: list[Fault] = []) -> Iterator[subprocess.Popen[str]]:  # noqa: B006
        """The command while it runs; whatever is left of it at the end is killed."""
        command = [sys.executable, "-c", "from tether.cli.app import main; main()", "run", "counts"]
        options = {
            "--input": self.work / "in",
            "--key": "k",
            "--policy": self.policy,
            "--backup": self.work / "backup",
            "--checkpoint": self.work / "checkpoint",
            "--master": self.master,
            "--slots": self.slots,
            "--answer": self.work / "answer.parquet",
            "--arena-scope": self.arena_scope,
        }
        command += [str(part) for option in options.items() for part in option]
        environment = {**os.environ, **self.left.environment()}
        environment["TETHER_FAULTS"] = msgspec.json.encode(faults).decode()
        if self.conf:
            options_ = " ".join(f"--conf {name}={value}" for name, value in self.conf.items())
            environment["PYSPARK_SUBMIT_ARGS"] = f"{options_} pyspark-shell"
        with (self.work / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--json", "--story"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
            try:
                yield process
            finally:
                kill_all(process.pid)
                process.wait()

    def left_behind(self) -> list[object]:
        """Processes, arenas and locks of this query that are still there."""
        return [*self.left.processes_after(120), *super().left_behind()]

    def epochs_committed(self) -> int:
        """Epochs that Spark has committed so far."""
        commits = self.work / "checkpoint" / "commits"
        return len([entry for entry in commits.glob("*") if entry.name.isdigit()])

    def answer(self) -> dict[int, int]:
        """Newest count of each key that this run has emitted."""
        rows = pq.read_table(self.work / "answer.parquet")
        return dict(zip(rows["k"].to_pylist(), rows["count"].to_pylist(), strict=True))
