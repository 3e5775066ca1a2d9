"""A workload as a process of its own, for faults that end its driver or its executors."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from tests.chaos.matrix import POLICIES
from tests.chaos.running import Outcome, Run, told
from tests.chaos.workloads import WORKLOADS, written
from tests.jobs import run_job, say
from tests.spark.commands import QueryFolder

from tether.chaos.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.testing.leftovers import Leftovers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.matrix import Process

EPOCHS = 18
"""As many as it takes to kill one executor at every point, with an epoch between two of them."""


class Order(msgspec.Struct):
    """What the process is to run."""

    workload: str
    policy: str
    work: str
    master: str
    arena_scope: str
    faults: list[Fault]


@dataclass
class Job(QueryFolder):
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
        ended = run_job(__name__, order, self.work, self.left)
        assert ended.outlived == [], "processes have outlived their driver"
        if ended.result is None:
            return None
        outcome = Outcome(**ended.result)
        outcome.told = told(self.work)
        outcome.events = Counter(outcome.events)
        outcome.output = written(self.work / "out")
        return outcome

    def __post_init__(self) -> None:
        self.arena_roots = (self.work / "arena",)


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
    say(result)
    session.stop()


if __name__ == "__main__":
    main()
