"""Causing failures on purpose, with an account of each, and the same ones again from a seed."""

from __future__ import annotations

import json
import random
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tether.chaos.faults import DRIVER_POINTS, STORE_POINTS, Fault, hang
from tether.testing.disks import SmallDisk, small_disk
from tether.testing.processes import command_of, kill, kill_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tether.chaos.faults import Action, AnyPoint, Point

WORKER_POINTS: tuple[Point, ...] = (
    "before-attach",
    "halfway",
    "after-apply",
    "during-backup",
    "after-commit",
)
"""Points that a slot passes under every policy that backs up."""


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """One failure that was caused."""

    at: float
    """Unix seconds."""
    what: str
    victim: str = ""


class Injector:
    """Causes failures: planned at points of the epoch protocol, or now, to a process or a place.

    One object serves one run. Planned faults travel with the query and strike wherever the point is
    reached, in whatever process; each strikes once. All that is random comes from the seed, so the
    same seed plans the same faults: print it, and a red run can be had again.

    Args:
        scratch: A directory for markers, on a file system that all processes of the run share.
        seed: Of all random choices.

    Example:
        >>> import tempfile
        >>> injector = Injector(Path(tempfile.mkdtemp()), seed=7)
        >>> fault = injector.at("halfway", "kill", slot=1, epoch=3)
        >>> injector.at("store-append", "stall", seconds=0.5).action
        'stall'
        >>> len(injector.faults), injector.struck()  # pass faults to start(faults=...)
        (2, [])
        >>> again = Injector(Path(tempfile.mkdtemp()), seed=7)
        >>> planned = injector.scatter(3, epochs=9, slots=2)
        >>> [(f.point, f.epoch) for f in planned] == [
        ...     (f.point, f.epoch) for f in again.scatter(3, epochs=9, slots=2)]
        True
    """

    def __init__(self, scratch: Path, *, seed: int = 0) -> None:
        self.scratch, self.seed = scratch, seed
        self.random = random.Random(seed)  # noqa: S311 - chance, not secrecy
        self.faults: list[Fault] = []
        self._strikes: list[Strike] = []
        scratch.mkdir(parents=True, exist_ok=True)

    # ---- at points of the protocol -------------------------------------------------------------

    def at(
        self,
        point: AnyPoint,
        action: Action = "kill",
        *,
        slot: int | None = None,
        operator: str | None = None,
        epoch: int = 0,
        seconds: float = 2.0,
    ) -> Fault:
        """Plan a fault; see :class:`~tether.chaos.faults.Fault` for the arguments."""
        fault = Fault(
            point=point,
            action=action,
            slot=slot,
            operator=operator,
            epoch=epoch,
            seconds=seconds,
            marker=str(self.scratch / f"{len(self.faults):04}-{point}-{action}"),
        )
        self.faults.append(fault)
        return fault

    def scatter(
        self,
        number: int,
        *,
        epochs: int,
        slots: int,
        points: Sequence[Point] = WORKER_POINTS,
        actions: Sequence[Action] = ("kill",),
    ) -> list[Fault]:
        """Plan faults at random points, epochs and slots."""
        planned = []
        for _ in range(number):
            point = self.random.choice(points)
            slot = None if point in DRIVER_POINTS + STORE_POINTS else self.random.randrange(slots)
            action, epoch = self.random.choice(actions), self.random.randrange(1, epochs)
            planned.append(self.at(point, action, slot=slot, epoch=epoch))
        return planned

    def environment(self) -> dict[str, str]:
        """What makes ``tether run`` carry the planned faults."""
        return {"TETHER_FAULTS": msgspec.json.encode(self.faults).decode()}

    # ---- now -----------------------------------------------------------------------------------

    def kill(self, pid: int) -> None:
        """SIGKILL one process."""
        self._note("kill", pid)
        kill(pid)

    def kill_tree(self, pid: int) -> None:
        """SIGKILL a process and all below it, as the loss of a machine would."""
        self._note("kill with all below it", pid)
        kill_all(pid)

    def hang(self, pid: int, seconds: float) -> None:
        """SIGSTOP a process; it goes on after ``seconds``."""
        self._note(f"hang for {seconds:g} s", pid)
        hang(pid, seconds)

    def remove(self, directory: Path) -> None:
        """Delete an arena, or any other directory, under those who use it."""
        self._strikes.append(Strike(at=time.time(), what="remove", victim=directory.name))
        shutil.rmtree(directory, ignore_errors=True)

    def now_and_then(
        self, strike: Callable[[], object], *, seconds: float, every: tuple[float, float]
    ) -> int:
        """Strike again and again for ``seconds``, with random pauses; the number of strikes."""
        deadline, strikes = time.monotonic() + seconds, 0
        while True:
            pause = self.random.uniform(*every)
            if time.monotonic() + pause > deadline:
                return strikes
            time.sleep(pause)
            strike()
            strikes += 1

    def fill(self, disk: SmallDisk) -> None:
        """Leave no room on a small disk."""
        self._strikes.append(Strike(at=time.time(), what="fill", victim=disk.path.name))
        disk.fill()

    @contextmanager
    def full_disk(self, size: int) -> Iterator[SmallDisk]:
        """A disk of ``size`` bytes that can be filled and freed; see :mod:`tether.testing.disks`."""
        with small_disk(self.scratch / "small-disk", size) as disk:
            yield disk

    # ---- the account ---------------------------------------------------------------------------

    def struck(self) -> list[Strike]:
        """What has struck so far, oldest first."""
        planned = []
        for fault in self.faults:
            marker = Path(fault.marker)
            if marker.exists():
                note: dict[str, Any] = json.loads(marker.read_text() or "{}")
                where = (
                    f"process {note.get('pid')}, slot {note.get('slot')}, epoch {note.get('epoch')}"
                )
                what = f"{fault.action} at {fault.point}"
                planned.append(Strike(at=note.get("at", 0.0), what=what, victim=where))
        return sorted([*planned, *self._strikes], key=lambda strike: strike.at)

    def _note(self, what: str, pid: int) -> None:
        victim = f"process {pid}: {command_of(pid)[-120:]}"
        self._strikes.append(Strike(at=time.time(), what=what, victim=victim))
