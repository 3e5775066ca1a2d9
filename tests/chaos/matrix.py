"""The table of the matrix: policies, faults, the points that they strike at, and what is promised."""

from __future__ import annotations

import itertools
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos import plans
from tests.chaos.plans import PASSES

import tether
from tether.core.errors import BackupError, BackupUnreadableError, TetherError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.chaos.plans import Plan

ALL = ("counts", "words", "pipeline", "loop", "regression", "hitters", "top-k")
MOVED = ("counts", "words", "loop", "hitters", "top-k")
"""Workloads whose executors and drivers are killed: with regression there is no more to see."""
POLICIES: dict[str, Callable[[float], Any]] = {
    "no-tolerance": lambda theta: tether.NoTolerance(),
    "approximate": tether.Approximate,
    "mini-batch": lambda theta: tether.MiniBatch(),
    "upstream-backup": lambda theta: tether.UpstreamBackup(0.4),
    "barrier-async": lambda theta: tether.Barrier(2),
    "barrier-sync": lambda theta: tether.Barrier(3, mode="sync"),
}
KEEPS = tuple(name for name in POLICIES if name != "no-tolerance")
EXACT = tuple(name for name in KEEPS if name != "approximate")
REPLAYS = ("approximate", "mini-batch", "upstream-backup")
"""Policies under which a lost slot restores itself; the others take the whole query back."""

WORKER_POINTS = {
    **dict.fromkeys(PASSES, tuple(POLICIES)),
    "during-backup": KEEPS,
    "after-log": ("upstream-backup",),
    "during-writing": ("barrier-async",),
}
"""Where a slot's worker can be struck while nothing is lost, with the policies that come there."""
# Whoever dies after the second has something to recover: so that point is come to, too.
AT_EVERY_POINT = ("before-attach", "during-recovery", *list(WORKER_POINTS)[1:])
DRIVERS_OWN = ("after-job", "before-spark-commit")


@dataclass(frozen=True)
class Process:
    """What a cell needs that does not run in the session of all tests.

    Attributes:
        master: Spark's; in local mode the driver and its executor are one.
        arena_scope: Whether resident state dies with its executor.
        restarts: Whether it is the driver that dies, so that the query must be started again.
    """

    master: str = "local[2,4]"
    arena_scope: str = "executor"
    restarts: bool = True


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        plan: Plans it with an injector, at a point; may give what the driver does in an epoch.
        points: Where it may strike, each with the policies that come there.
        loses: Whether resident state is lost, so that an approximate answer may be off.
        stops: Errors with which the query may stop; it is started again then.
        ends: Errors with which exact policies may end for good, because going on would be a guess.
        widens: Whether the bound may be wider than Θ by what is reported as extra.
        workloads: Those that it makes sense for.
        small_disk: Whether backups are on a disk that can be filled.
        process: How to run it as a process of its own; None where the tests' session will do.
    """

    plan: Plan
    points: dict[str, tuple[str, ...]]
    loses: bool = False
    stops: tuple[type[TetherError], ...] = ()
    ends: tuple[type[TetherError], ...] = ()
    widens: bool = False
    workloads: tuple[str, ...] = ("counts", "pipeline", "loop")
    small_disk: bool = False
    process: Process | None = None


FAULTS: dict[str, Kind] = {
    "kill a Python worker": Kind(plans.strike("kill"), WORKER_POINTS, workloads=ALL),
    "kill at every point": Kind(plans.strike_everywhere, {"every": KEEPS}),
    "kill in compaction": Kind(
        plans.strike("kill"), {"during-compaction": ("mini-batch",)}, workloads=("wide",)
    ),
    "hang a Python worker": Kind(
        plans.strike("hang", seconds=1.5), {"halfway": KEEPS, "during-backup": KEEPS}
    ),
    "a task fails": Kind(plans.strike("raise"), dict.fromkeys(("halfway", "after-apply"), KEEPS)),
    "lose state": Kind(plans.lose, {"before-attach": KEEPS}, loses=True, workloads=ALL),
    "lose state, kill the recovery": Kind(
        plans.strike_after_loss("kill"),
        {"during-recovery": KEEPS, "during-replay": ("upstream-backup",)},
        loses=True,
    ),
    "remove the arenas": Kind(plans.remove_arenas, {"between epochs": KEEPS}, loses=True),
    "the driver fails": Kind(
        plans.strike("raise"),
        {"after-job": KEEPS, "before-spark-commit": KEEPS},
        stops=(TetherError,),
    ),
    "the driver fails over a rewind": Kind(
        plans.strike_after_loss("raise"),
        {"during-rewind": ("barrier-async", "barrier-sync")},
        loses=True,
        stops=(TetherError,),
    ),
    "kill executors": Kind(
        plans.strike_one_after_the_other(AT_EVERY_POINT, apart=2),
        {"every": KEEPS},
        loses=True,
        workloads=MOVED,
        process=Process("local-cluster[2,1,900]", restarts=False),
    ),
    "kill the driver and all memory": Kind(
        plans.strike_one_after_the_other((*AT_EVERY_POINT, *DRIVERS_OWN)),
        {"every": KEEPS},
        loses=True,
        workloads=MOVED,
        process=Process(),
    ),
    "kill the driver, memory stays": Kind(
        plans.strike_one_after_the_other((*WORKER_POINTS, *DRIVERS_OWN)),
        {"every": KEEPS},
        workloads=MOVED,
        process=Process(arena_scope="node"),
    ),
    "the store fails to write": Kind(
        plans.strike("fail"), {"store-append": KEEPS, "store-commit": KEEPS}, stops=(BackupError,)
    ),
    "the disk is full": Kind(
        plans.fill_disk, {"between epochs": KEEPS}, stops=(BackupError,), small_disk=True
    ),
    "the store fails to read": Kind(
        plans.spoil_read("fail"), {"store-read": REPLAYS}, loses=True, stops=(BackupError,)
    ),
    "the store stalls": Kind(
        plans.strike("stall", seconds=1.0), {"store-append": KEEPS, "store-commit": KEEPS}
    ),
    "the store tears a frame": Kind(
        plans.spoil_append("tear"),
        {"store-append": KEEPS},
        loses=True,
        stops=(BackupUnreadableError,),
        ends=(BackupUnreadableError,),
        widens=True,
    ),
    "the store is stale": Kind(plans.spoil_read("stale"), {"store-read": REPLAYS}, loses=True),
    "a mix of faults": Kind(plans.mix, {"random": KEEPS}, loses=True, workloads=ALL),
}


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    policy: str
    workload: str
    fault: str
    point: str
    short: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.policy}-{self.workload}-{self.fault}-{self.point}-{self.seed}".replace(
            " ", "_"
        )

    @property
    def kind(self) -> Kind:
        return FAULTS[self.fault]

    def must_strike(self) -> set[str]:
        """Of the points of a process that is killed at every one: those this policy comes to."""
        passed = {point for point, who in WORKER_POINTS.items() if self.policy in who}
        if self.kind.process is None:
            return set()
        if self.kind.loses:
            passed.add("during-recovery")
        return passed | set(DRIVERS_OWN if self.kind.process.restarts else ())


SHORT = {
    ("approximate", "counts", "a mix of faults", "random"),
    ("upstream-backup", "hitters", "lose state", "before-attach"),
    ("barrier-async", "loop", "lose state", "before-attach"),
    ("approximate", "counts", "the store tears a frame", "store-append"),
    ("approximate", "counts", "the store is stale", "store-read"),
    ("mini-batch", "counts", "the store fails to write", "store-commit"),
    ("approximate", "counts", "remove the arenas", "between epochs"),
    ("barrier-sync", "counts", "the driver fails", "before-spark-commit"),
}
"""What every test run does: each policy, each kind of thing that can go wrong."""


def cases() -> Iterator[Case]:
    """Every cell; seeds come from the cell's name and TETHER_SEED, so a red one can be had again."""
    base = int(os.environ.get("TETHER_SEED", "1"))
    for fault, kind in FAULTS.items():
        for workload, (point, policies) in itertools.product(kind.workloads, kind.points.items()):
            for policy in policies:
                cell = (policy, workload, fault, point)
                seed = zlib.crc32(repr((cell, base)).encode()) % 100_000
                yield Case(*cell, short=cell in SHORT, seed=seed)


def as_table() -> str:
    """The matrix as docs/failures.md shows it."""
    lines = ["| fault | point | policies |", "|---|---|---|"]
    for fault, kind in FAULTS.items():
        for point, policies in kind.points.items():
            who = "all that keep backups" if policies == KEEPS else ", ".join(policies)
            lines.append(
                f"| {fault} | {point} | {'all' if set(policies) == set(POLICIES) else who} |"
            )
    return "\n".join(lines)
