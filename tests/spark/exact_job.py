"""One exact query as a process of its own, for tests that kill its executors or all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tether.spark.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.testing.processes import kill_all

from .commands import LONGEST_SECONDS, spark_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULT = "exact-job: "


class Order(msgspec.Struct):
    """What the process is to run."""

    kind: str
    policy: str
    work: str
    master: str
    arena_scope: str
    faults: list[Fault]


@dataclass(frozen=True)
class ExactJob:
    """Run it again to go on where it stopped."""

    kind: str
    policy: str
    work: Path
    master: str = "local[2,4]"
    arena_scope: str = "executor"

    def run(self, faults: Sequence[Fault]) -> dict[str, Any] | None:
        """What the query told at its end; None where it was killed or failed."""
        order = Order(
            self.kind, self.policy, str(self.work), self.master, self.arena_scope, list(faults)
        )
        with (self.work / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, msgspec.json.encode(order).decode()],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[1],
                env=spark_environment(self.work, self.master),
            )
            try:
                said, _ = process.communicate(timeout=2 * LONGEST_SECONDS)
            finally:
                kill_all(process.pid)
                process.wait()
        told = [line for line in said.splitlines() if line.startswith(RESULT)]
        return json.loads(told[-1].removeprefix(RESULT)) if told else None

    def log(self) -> str:
        return (self.work / "log").read_text()[-4000:]


def main() -> None:
    from tether.cli.session import open_session

    from .exact_queries import KINDS, POLICIES, start

    order = msgspec.json.decode(sys.argv[1], type=Order)
    session = open_session(order.master, app="tether tests")
    query = start(
        session,
        KINDS[order.kind],
        POLICIES[order.policy],
        Path(order.work),
        order.faults,
        arena_scope=order.arena_scope,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    told = {
        "spent": query.bound().spent,
        "losses": query.totals()["losses"],
        "events": Counter(event.what for event in query.story()),
    }
    print(RESULT + json.dumps(told), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
