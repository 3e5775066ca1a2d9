"""Which faults a task can come to at all: only those need a process of their own, and a fork is dear.

Whatever is in doubt counts. Were something forgotten here, the kill would still be real, but the driver
would die together with its worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.chaos.faults import DRIVER_POINTS, DRIVER_STORE_POINTS
from tether.engine.writing import writer
from tether.spark.tasks.task import SlotTask

if TYPE_CHECKING:
    from tether.chaos.faults import Fault
    from tether.engine.slot.program import Program
    from tether.testing.inprocess.frames import LocalFrame

_FATAL = ("kill", "executor")
_OF_LOGGED_ROWS = ("after-log", "during-replay")
_WRITTEN_AT_MOST = 1 << 16
"""Larger than the number of bytes that a slot of a test writes between two whole images."""


def is_fatal(fault: Fault) -> bool:
    """Whether it ends a worker."""
    of_driver = fault.point in (*DRIVER_POINTS, *DRIVER_STORE_POINTS)
    return fault.action in _FATAL and not of_driver


def can_strike(fault: Fault, frame: LocalFrame, partition: int, *, seated: bool) -> bool:
    """Whether the task of a frame's partition may come to where a fault waits.

    Args:
        fault: A fatal one that has not struck yet.
        frame: What the task computes.
        partition: Which part of it.
        seated: Whether partitions are seats, of which any may be that of a slot.
    """
    if fault.slot not in (None, partition) and not seated:
        return False
    tasks = (each for each in frame.functions() if isinstance(each, SlotTask))
    return any(_meets(fault, each.program) for each in tasks)


def _meets(fault: Fault, program: Program) -> bool:
    if fault.point == "store-read":
        return True  # it knows neither epoch nor operator
    if fault.operator not in (None, program.control.operator):
        return False
    if program.control.epoch < fault.epoch:
        return False
    if fault.point in _OF_LOGGED_ROWS:
        return program.policy.recovery.logs_rows
    if fault.point == "during-compaction":
        return writer.COMPACT_FLOOR_BYTES < _WRITTEN_AT_MOST
    return True
