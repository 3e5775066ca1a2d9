"""How slots report to the driver: an accumulator, so that no row and no plan node is spent on it.

Spark hands a task's update to the driver before it counts the task as done, so when an action has
returned, every slot that it ran has reported; and every action reports, not only the first. Only
tasks that succeeded report. (An observed metric would cost two plan nodes an epoch, about a quarter
of an empty epoch's time, and would speak only for the first action.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from tether.core.graph import SlotId
from tether.core.ids import Epoch
from tether.engine.messages import decode_status

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tether.engine.messages import SlotStatus


class _LatestPerSlot(AccumulatorParam["dict[SlotId, bytes]"]):  # type: ignore[misc]  # untyped to us
    """Keeps the newest report of each slot: the resident state is what the last task left."""

    def zero(self, value: dict[SlotId, bytes]) -> dict[SlotId, bytes]:
        del value
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[SlotId, bytes], value2: dict[SlotId, bytes]
    ) -> dict[SlotId, bytes]:
        value1.update(value2)
        return value1


class StatusBoard:
    """The driver's end; picklable, so that a task can pin its report to it.

    Args:
        context: The driver's Spark context.
    """

    def __init__(self, context: SparkContext) -> None:
        self._newest = context.accumulator({}, _LatestPerSlot())

    def report(self, slot: SlotId, status: bytes) -> None:
        """Called by a slot's task at its end."""
        self._newest.add({slot: status})

    def forget(self) -> None:
        """Called by the driver: drop all reports so far."""
        self._newest.value = {}

    def take(self, epoch: Epoch) -> dict[SlotId, SlotStatus]:
        """Called by the driver: newest reports of this epoch, by slot."""
        statuses = (decode_status(report) for report in list(self._newest.value.values()))
        return {SlotId(s.operator, s.slot): s for s in statuses if s.epoch == epoch}
