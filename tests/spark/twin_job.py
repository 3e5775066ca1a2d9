"""A counting query with a twin as a process of its own, whose executors or driver can be killed."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from tests.jobs import run_job, say
from tests.spark.commands import LONGEST_SECONDS, QueryFolder, from_the_start
from tests.spark.counting import SCHEMA

from tether.chaos.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.state.roots import sweep
from tether.testing.leftovers import Leftovers
from tether.testing.processes import kill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tether.spark.query import Query

EXECUTORS = 3
AHEAD = 6
"""Epochs between a snapshot and a kill, so that the twin is still at work when it is its turn."""


class Order(msgspec.Struct):
    """What the process is to run."""

    work: str
    master: str
    policy: str
    faults: list[Fault] = []
    kills: list[str] = []
    """Whose executor gets SIGKILL, one after the other: main's or the twin's."""


@dataclass
class TwinJob(QueryFolder):
    """Run it again to go on where it stopped."""

    work: Path
    policy: str
    master: str = "local[2,4]"
    left: Leftovers = field(default_factory=Leftovers)

    def run(self, faults: Sequence[Fault] = (), kills: Sequence[str] = ()) -> dict[str, Any] | None:
        """All changes that were given, and the story; None where it was killed or failed."""
        order = Order(str(self.work), self.master, self.policy, list(faults), list(kills))
        environment = {}
        if "cluster" in self.master:
            conf = " ".join(f"--conf {a}={b}" for a, b in from_the_start(EXECUTORS).items())
            environment["PYSPARK_SUBMIT_ARGS"] = f"{conf} pyspark-shell"
        return run_job(__name__, order, self.work, self.left, **environment).result

    def left_behind(self) -> list[object]:
        """Arenas and locks of this query that are still there, and that nobody will clear away."""
        # Those of an executor that died are removed by the next query on its machine.
        sweep(Path("/dev/shm") / f"tether-{os.geteuid()}")
        return super().left_behind()


# ---- in the process --------------------------------------------------------------------------------


def main() -> None:
    import tether
    from tether.algorithms.aggregate import KeyedAggregate
    from tether.cli.session import open_session
    from tether.policies.parse import parse_policy
    from tether.testing.epochs import read_epochs

    order = msgspec.json.decode(sys.argv[1], type=Order)
    work = Path(order.work)
    conf = {"spark.scheduler.mode": "FAIR", "spark.locality.wait": "10s"}
    session = open_session(order.master, app="tether tests", conf=conf)
    query = (
        tether.stream(read_epochs(session, work / "in", SCHEMA))
        .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=EXECUTORS)
        .start(
            tether.to_changes(str(work / "changes"), key="k"),
            tolerance=parse_policy(order.policy),
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_scope="executor",
            faults=order.faults,
        )
    )
    for _ in range(AHEAD if order.kills else 0):
        advance(query, work)
    for number, whose in enumerate(order.kills):
        strike(query, work, whose, number)
    reveal(work)
    query.processAllAvailable()
    spent = query.bound().spent
    table = {row["k"]: row["count"] for row in query.table("totals").collect()}
    query.stop()
    changes = tether.read_changes(session, str(work / "changes"), "history")
    result = {
        "history": [row.asDict() for row in changes.collect()],
        "story": msgspec.to_builtins(query.story()),
        "spent": spent,
        "table": table,
    }
    say(result)
    session.stop()


def reveal(work: Path) -> int:
    """Let the query see its next epoch; how many it sees."""
    for path in sorted((work / "later").glob("*.parquet"))[:1]:
        path.rename(work / "in" / path.name)
    return len(list((work / "in").glob("*.parquet")))


def strike(query: Query, work: Path, whose: str, number: int) -> None:
    """SIGKILL an executor of main or of the twin, and let main run an epoch after it."""
    over = query._driver._meanwhile._over  # type: ignore[union-attr]
    advance(query, work)
    runner = over.running.runner
    while whose == "twin":
        wait_for(lambda: over.whole or over.twins.epochs > 0)
        twin = over.twins.twin
        if twin is not None and twin.runner is not None and places(twin.runner):
            runner = twin.runner
            break
        if over.whole:  # it was faster: let the next one have a longer way to go
            for _ in range(AHEAD):
                advance(query, work)
            strike(query, work, "main", number)
    victims = places(runner)
    killed = int(victims[number % len(victims)].split(":")[1])
    print(f"kill {number} of {whose}: {killed}, {over.state}", file=sys.stderr, flush=True)
    kill(killed)
    advance(query, work)


def advance(query: Query, work: Path) -> None:
    """Let main run one more epoch."""
    there = reveal(work)
    wait_for(lambda: main_at(query) >= there - 1)


def main_at(query: Query) -> int:
    """The last epoch that main has ended."""
    runners = query._driver.runners
    return runners[0].committed_epoch if runners else -1


def places(runner: Any) -> list[str]:
    """Executors of a run's slots."""
    return [place for ledger in runner.books.ledgers.values() for place in ledger.places()]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
