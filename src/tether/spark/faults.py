"""Faults on purpose, at named points of the epoch protocol, for tests and drills.

A query carries no faults unless it was started with some; then ``reach`` is one comparison.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

import msgspec

Point = Literal[
    "before-attach",
    "after-log",
    "halfway",
    "after-apply",
    "during-backup",
    "during-writing",
    "after-commit",
    "during-recovery",
    "during-replay",
    "during-rewind",
]
"""Points of the epoch protocol (:mod:`tether.spark.slot`) at which a slot's Python worker can be
struck; at "during-rewind" it is the driver."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Strike once, when a slot reaches a point of the protocol.

    Attributes:
        point: Where in the epoch protocol.
        marker: A file that says that this fault has struck; it strikes again when it is removed.
        slot: Which slot, or None for the first that comes.
        operator: Which operator's, or None for any.
        epoch: First epoch in which it may strike.
        action: "kill": SIGKILL of the Python worker. "executor": SIGKILL of its executor.
            "raise": an exception, as a failing task would.
            "forget": the slot's resident state is removed; only at "before-attach".
    """

    point: Point
    marker: str
    slot: int | None = None
    operator: str | None = None
    epoch: int = 0
    action: Literal["kill", "executor", "raise", "forget"] = "kill"


def reach(
    faults: tuple[Fault, ...], point: Point, slot: int, epoch: int, operator: str = ""
) -> bool:
    """A slot has come to ``point``: let a fault that waits there strike.

    Returns:
        Whether the slot is to forget its resident state.
    """
    forget = False
    for fault in faults:
        meant = fault.slot in (None, slot) and fault.operator in (None, operator)
        if fault.point == point and meant and epoch >= fault.epoch:
            forget = _strike(fault) or forget
    return forget


def _strike(fault: Fault) -> bool:
    try:
        Path(fault.marker).open("x").close()
    except FileExistsError:
        return False  # it has struck before
    if fault.action == "forget":
        return True
    if fault.action == "raise":
        raise RuntimeError(f"fault on purpose at {fault.point}")
    victim = os.getpid()
    if fault.action == "executor":
        from tether.spark.executor import executor_process  # noqa: PLC0415 - only for this fault

        victim = executor_process()
    os.kill(victim, signal.SIGKILL)
    time.sleep(60)  # until the executor's death reaches this process
    return False
