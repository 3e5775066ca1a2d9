"""Faults on purpose, at named points of the epoch protocol, for tests and drills.

A query carries no faults unless it was started with some; then ``reach`` is one comparison.
:class:`tether.testing.injector.Injector` plans them and keeps account of what struck.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Point = Literal[
    "before-attach",
    "after-log",
    "halfway",
    "after-apply",
    "during-backup",
    "during-compaction",
    "during-writing",
    "after-commit",
    "during-recovery",
    "during-replay",
    "during-rewind",
    "after-job",
    "before-spark-commit",
    "store-append",
    "store-read",
    "store-commit",
]
"""Points of the epoch protocol (:mod:`tether.engine.slot.epoch`) at which a slot's Python worker can be
struck. At "during-rewind", "after-job" (before the commit record) and "before-spark-commit" (after
it) it is the driver. At "store-append" and "store-read", by a slot, and "store-commit", by the driver,
it is the backup store."""

TakeOverPoint = Literal[
    "after-note",
    "after-twin-epoch",
    "after-hold",
    "after-twin-saved",
    "after-announcing",
    "after-take-over",
    "after-note-removed",
]
"""Steps 1, 3, 5, 6, 7, 8 and 9 of the take-over (:mod:`tether.protocols.take_over`), at which it
is the driver that is struck. After step 4, a later epoch's, it is "after-note" again."""

AheadPoint = Literal["after-copy", "after-tentative", "before-undo"]
"""Steps of a query that goes ahead without an input (:mod:`tether.spark.running.available`): the copy of
the state is made; a tentative epoch has been run and given; stable epochs are about to continue. It is
the driver that is struck."""

RescalePoint = Literal[
    "rescale-flushed",
    "rescale-announced",
    "rescale-written",
    "rescale-recorded",
    "rescale-settled",
    "rescale-reopened",
]
"""Steps of a change of the number of slots (:mod:`tether.engine.query.rescaling`), of which the first
and the last are a running query's alone. It is the driver that is struck."""

AnyPoint = Point | TakeOverPoint | AheadPoint | RescalePoint

DRIVER_POINTS: tuple[AnyPoint, ...] = (
    "during-rewind",
    "after-job",
    "before-spark-commit",
    *get_args(TakeOverPoint),
    *get_args(AheadPoint),
    *get_args(RescalePoint),
)
SLOT_STORE_POINTS: tuple[Point, ...] = ("store-append", "store-read")
DRIVER_STORE_POINTS: tuple[Point, ...] = ("store-commit",)
STORE_POINTS = SLOT_STORE_POINTS + DRIVER_STORE_POINTS

Action = Literal[
    "kill",
    "executor",
    "raise",
    "forget",
    "hang",
    "hang-executor",
    "hold",
    "fail",
    "stall",
    "tear",
    "stale",
]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Strike once, when a slot reaches a point of the protocol.

    Attributes:
        point: Where in the epoch protocol.
        marker: A file that says that this fault has struck, when and in which process; it strikes
            again when it is removed.
        slot: Which slot, or None for the first that comes; never a copy, only who speaks.
        operator: Which operator's, or None for any.
        epoch: First epoch in which it may strike.
        action: "kill": SIGKILL of the process that is there, the Python worker or the driver.
            "executor": SIGKILL of its executor; of a driver's, only where it has started it itself
            (:mod:`tether.testing.inprocess`). "raise": an exception, as a failing task would.
            "forget": the slot's resident state is removed; only at "before-attach".
            "hang", "hang-executor": SIGSTOP of the Python worker, or of its executor, for
            ``seconds``. "hold": tasks that reach it wait until ``release`` is called, in whatever
            process. At the store's points only: "fail": an error, as of a store that is down.
            "stall": it takes ``seconds`` longer. "tear": the frame is cut in half, and yet said
            to be durable, as by a disk that lies. "stale": the commit log is read without its newest
            records.
        seconds: How long a hang or a stall lasts.
    """

    point: AnyPoint
    marker: str
    slot: int | None = None
    operator: str | None = None
    epoch: int = 0
    action: Action = "kill"
    seconds: float = 2.0


def reach(
    faults: tuple[Fault, ...], point: AnyPoint, slot: int, epoch: int, operator: str = ""
) -> bool:
    """A slot has come to ``point``: let a fault that waits there strike.

    Returns:
        Whether the slot is to forget its resident state.
    """
    forget = False
    for fault in due(faults, point, slot, epoch, operator):
        forget = strike(fault) or forget
    return forget


def due(
    faults: Iterable[Fault], point: AnyPoint, slot: int, epoch: int, operator: str = ""
) -> Iterator[Fault]:
    """Faults that strike now; each is given once, to one process."""
    for fault in faults:
        meant = fault.slot in (None, slot) and fault.operator in (None, operator)
        if fault.point == point and meant and epoch >= fault.epoch:
            note = {"at": time.time(), "pid": os.getpid(), "slot": slot, "epoch": epoch}
            try:
                with Path(fault.marker).open("x") as marker:
                    json.dump(note, marker)
            except FileExistsError:
                continue  # it has struck before
            yield fault


def release(fault: Fault) -> None:
    """Release everything that a fault holds, now or later."""
    _released(fault).touch()


def is_holding(fault: Fault) -> bool:
    """Whether somebody waits to be released."""
    return Path(fault.marker).exists() and not _released(fault).exists()


def _released(fault: Fault) -> Path:
    return Path(f"{fault.marker}.released")


def hang(pid: int, seconds: float) -> None:
    """SIGSTOP a process, and let it go on after ``seconds``; returns when it has been stopped."""
    os.kill(pid, 0)  # an error if there is none
    # A process of its own stops and wakes the other one, in this order: if we stopped it here, a busy
    # machine could do so after the waking, and it would sleep for ever. It holds none of its files and
    # locks. A process may notice late that it is to stop, and SIGCONT would take back a stop that has
    # not happened yet: so the time begins once it has stopped (or is dead).
    stopped = f"grep -qs '^State:.[TZX]' /proc/{int(pid)}/status || ! kill -0 {int(pid)}"
    stop = f"kill -STOP {int(pid)}; until {stopped}; do sleep 0.001; done; echo"
    go_on = f"sleep {float(seconds)}; kill -CONT {int(pid)}"
    stopping = subprocess.Popen(  # noqa: S603 - fixed words and two numbers
        ["/bin/sh", "-c", f"trap '' PIPE; {stop}; {go_on}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert stopping.stdout is not None
    with stopping.stdout as told:
        told.readline()


def strike(fault: Fault) -> bool:
    """Let a fault strike at its point; give whether resident state is to be forgotten."""
    if fault.action == "forget":
        return True
    if fault.action == "raise":
        raise RuntimeError(f"fault on purpose at {fault.point}")
    if fault.action == "hold":
        while not _released(fault).exists():
            time.sleep(0.002)
        return False
    victim = os.getpid()
    of_driver = fault.point in (*DRIVER_POINTS, *DRIVER_STORE_POINTS)
    if fault.action in ("executor", "hang-executor"):
        from tether.state.executor import own_executor, parent_of  # noqa: PLC0415 - only here

        victim = own_executor().pid
        if of_driver and os.getpid() not in (victim, parent_of(victim)):
            raise RuntimeError("a driver knows only those executors that it has started itself")
    if fault.action in ("hang", "hang-executor"):
        hang(victim, fault.seconds)
        return False
    os.kill(victim, signal.SIGKILL)
    if of_driver:
        os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
        return False  # it goes on without that executor
    time.sleep(60)  # until the executor's death reaches this process
    return False
