"""The table of the matrix: policies, faults, the points that they strike at, and what is promised."""

from __future__ import annotations

import itertools
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tether
from tether.core.errors import BackupError, BackupUnreadableError, TetherError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.chaos.workloads import Workload

    from tether.testing.injector import Injector

ALL = ("counts", "words", "pipeline", "loop", "regression", "hitters")
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

PASSES = ("before-attach", "halfway", "after-apply", "after-commit")
"""Points that every slot passes in every epoch."""


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
    """

    plan: Callable[[Injector, Workload, Any], Any]
    points: dict[str, tuple[str, ...]]
    loses: bool = False
    stops: tuple[type[TetherError], ...] = ()
    ends: tuple[type[TetherError], ...] = ()
    widens: bool = False
    workloads: tuple[str, ...] = ("counts", "pipeline", "loop")
    small_disk: bool = False


def _lose_all(injector: Injector, workload: Workload, epoch: int) -> None:
    for operator, slot in workload.all_slots():
        injector.at("before-attach", "forget", operator=operator, slot=slot, epoch=epoch)


def _lose_one(injector: Injector, workload: Workload, epoch: int) -> None:
    operator, slot = workload.all_slots()[-1]
    injector.at("before-attach", "forget", operator=operator, slot=slot, epoch=epoch)


def _strike(action: Any, **more: Any) -> Callable[[Injector, Workload, Any], None]:
    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        for epoch in (2, 4):
            injector.at(point, action, epoch=epoch, **more)

    return plan


def _strike_everywhere(injector: Injector, workload: Workload, point: Any) -> None:
    for epoch, place in enumerate((*PASSES, "during-backup"), 1):
        injector.at(place, "kill", epoch=epoch)  # type: ignore[arg-type]


def _strike_after_loss(action: Any) -> Callable[[Injector, Workload, Any], None]:
    """State is lost, and whoever brings it back is struck, twice."""

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        _lose_all(injector, workload, 4)
        for _ in range(2):
            injector.at(point, action, epoch=4)

    return plan


def _lose(injector: Injector, workload: Workload, point: Any) -> None:
    _lose_one(injector, workload, 2)
    _lose_all(injector, workload, 5)


def _mix(injector: Injector, workload: Workload, point: Any) -> None:
    """What chance wants, but always a loss of everything in the end."""
    injector.scatter(3, epochs=5, slots=2, points=PASSES, actions=("kill", "raise"))
    injector.scatter(1, epochs=4, slots=1, points=("before-attach",), actions=("forget",))
    _lose_all(injector, workload, 5)
    injector.at("during-recovery", "kill", epoch=5)


def _remove_arenas(injector: Injector, workload: Workload, point: Any) -> Any:
    def hook(epoch: int, place: Any) -> None:
        if epoch == 4:
            for arena in place.arenas():
                injector.remove(arena)

    return hook


def _fill_disk(injector: Injector, workload: Workload, point: Any) -> Any:
    """From one epoch to another, or until the query stops; once."""

    def hook(epoch: int, place: Any) -> None:
        if epoch == 3 and not injector.struck():
            injector.fill(place.disk)
        elif epoch == 5:
            place.disk.free()

    return hook


def _spoil_append(action: Any) -> Callable[[Injector, Workload, Any], None]:
    """A backup goes wrong, and then it is needed."""

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        operator, slot = workload.all_slots()[-1]
        injector.at("store-append", action, operator=operator, slot=slot, epoch=2)
        _lose_all(injector, workload, 5)

    return plan


def _spoil_read(action: Any) -> Callable[[Injector, Workload, Any], None]:
    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        _lose_all(injector, workload, 5)
        injector.at("store-read", action, seconds=1.0)

    return plan


FAULTS: dict[str, Kind] = {
    "kill a Python worker": Kind(
        _strike("kill"),
        {
            **dict.fromkeys(PASSES, tuple(POLICIES)),
            "during-backup": KEEPS,
            "after-log": ("upstream-backup",),
            "during-writing": ("barrier-async",),
        },
        workloads=ALL,
    ),
    "kill at every point": Kind(_strike_everywhere, {"every": KEEPS}),
    "kill in compaction": Kind(
        _strike("kill"), {"during-compaction": ("mini-batch",)}, workloads=("wide",)
    ),
    "hang a Python worker": Kind(
        _strike("hang", seconds=1.5), {"halfway": KEEPS, "during-backup": KEEPS}
    ),
    "a task fails": Kind(_strike("raise"), dict.fromkeys(("halfway", "after-apply"), KEEPS)),
    "lose state": Kind(_lose, {"before-attach": KEEPS}, loses=True, workloads=ALL),
    "lose state, kill the recovery": Kind(
        _strike_after_loss("kill"),
        {"during-recovery": KEEPS, "during-replay": ("upstream-backup",)},
        loses=True,
    ),
    "remove the arenas": Kind(_remove_arenas, {"between epochs": KEEPS}, loses=True),
    "the driver fails": Kind(
        _strike("raise"),
        {"after-job": KEEPS, "before-spark-commit": KEEPS},
        stops=(TetherError,),
    ),
    "the driver fails over a rewind": Kind(
        _strike_after_loss("raise"),
        {"during-rewind": ("barrier-async", "barrier-sync")},
        loses=True,
        stops=(TetherError,),
    ),
    "the store fails to write": Kind(
        _strike("fail"), {"store-append": KEEPS, "store-commit": KEEPS}, stops=(BackupError,)
    ),
    "the disk is full": Kind(
        _fill_disk, {"between epochs": KEEPS}, stops=(BackupError,), small_disk=True
    ),
    "the store fails to read": Kind(
        _spoil_read("fail"), {"store-read": REPLAYS}, loses=True, stops=(BackupError,)
    ),
    "the store stalls": Kind(
        _strike("stall", seconds=1.0), {"store-append": KEEPS, "store-commit": KEEPS}
    ),
    "the store tears a frame": Kind(
        _spoil_append("tear"),
        {"store-append": KEEPS},
        loses=True,
        stops=(BackupUnreadableError,),
        ends=(BackupUnreadableError,),
        widens=True,
    ),
    "the store is stale": Kind(_spoil_read("stale"), {"store-read": REPLAYS}, loses=True),
    "a mix of faults": Kind(_mix, {"random": KEEPS}, loses=True, workloads=ALL),
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


SHORT = {
    ("approximate", "counts", "kill at every point", "every"),
    ("approximate", "counts", "a mix of faults", "random"),
    ("mini-batch", "pipeline", "a mix of faults", "random"),
    ("upstream-backup", "loop", "a mix of faults", "random"),
    ("barrier-async", "loop", "a mix of faults", "random"),
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
