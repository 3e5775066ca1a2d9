"""A workload as a process of its own, for faults that end its driver or its executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from tests.chaos.matrix import POLICIES
from tests.chaos.running import Outcome, Run, told
from tests.chaos.workloads import WORKLOADS, written
from tests.spark.commands import LONGEST_SECONDS

from tether.chaos.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.testing.leftovers import Leftovers, arenas_of, is_locked
from tether.testing.processes import kill, kill_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.matrix import Process

EPOCHS = 18
"""As many as it takes to kill one executor at every point, with an epoch between two of them."""
RESULT = "job: "


class Order(msgspec.Struct):
    """What the process is to run."""

    workload: str
    policy: str
    work: str
    master: str
    arena_scope: str
    faults: list[Fault]


@dataclass
class Job:
    """Run it again to go on where it stopped."""

    workload: str
    policy: str
    work: Path
    process: Process
    left: Leftovers = field(default_factory=Leftovers)

    def run(self, faults: Sequence[Fault]) -> Outcome | None:
        """How the query ended; None where it was killed or failed."""
        order = Order(
            self.workload,
            self.policy,
            str(self.work),
            self.process.master,
            self.process.arena_scope,
            list(faults),
        )
        with (self.work / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, msgspec.json.encode(order).decode()],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[2],
                env={
                    **os.environ,
                    **self.left.environment(),
                },
            )
            try:
                said, _ = process.communicate(timeout=2 * LONGEST_SECONDS)
            finally:
                kill_all(process.pid)
                process.wait()
        stayed = self.left.processes_after(120)
        for pid in stayed:
            kill(pid)
        assert stayed == [], "processes have outlived their driver"
        results = [line for line in said.splitlines() if line.startswith(RESULT)]
        if not results:
            return None
        outcome = Outcome(**json.loads(results[-1].removeprefix(RESULT)))
        outcome.told = told(self.work)
        outcome.events = Counter(outcome.events)
        outcome.output = written(self.work / "out")
        return outcome

    def left_behind(self) -> list[object]:
        """Arenas and locks of this query that are still there."""
        left: list[object] = [*arenas_of(self.work / "checkpoint", [self.work / "arena"])]
        if is_locked(self.work / "backup"):
            left.append("the backup directory is locked")
        return left

    def log(self) -> str:
        return (self.work / "log").read_text()[-4000:]


def main() -> None:
    from tether.cli.session import open_session

    order = msgspec.json.decode(sys.argv[1], type=Order)
    workload = WORKLOADS[order.workload]
    # Spark may hold a task back so long for an executor that died while it ran.
    conf = {"spark.sql.shuffle.partitions": "2", "spark.locality.wait": "10s"}
    session = open_session(order.master, app="tether tests", conf=conf)
    run = Run(
        session,
        Path(order.work),
        workload,
        POLICIES[order.policy](workload.theta),
        order.faults,
        arena_scope=order.arena_scope,
    )
    outcome = run.go()
    result = {
        name: getattr(outcome, name) for name in ("spent", "extra", "losses", "table", "events")
    }
    print(RESULT + json.dumps(result), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
