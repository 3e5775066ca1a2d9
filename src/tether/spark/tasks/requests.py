"""What is asked of all slots beside epochs: to save what they have, to give it, to remove it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tether.spark.sinks import discard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.engine.messages import Purpose, SlotStatus
    from tether.spark.graph.flow import OperatorNode
    from tether.spark.tasks.jobs import SlotJobs
    from tether.spark.tasks.statuses import SlotId

Task = Callable[["OperatorNode", "DataFrame", int, "Purpose", str], "DataFrame"]


class SlotRequests:
    """Runs tasks that no epoch's rows are given to.

    Args:
        jobs: Knows where the slots are.
        task: Makes the task of an operator's slots, for an epoch, a purpose and a table.
    """

    def __init__(self, jobs: SlotJobs, task: Task) -> None:
        self._jobs, self._task = jobs, task

    def ask(self, purpose: Purpose, epoch: int) -> dict[SlotId, SlotStatus]:
        """Run a task in every slot; give the reports of those that made one."""
        assert self._jobs.board is not None
        self._jobs.board.forget()
        for node in self._jobs.operators:
            discard(self._run(node, purpose, epoch), epoch)
        return self._jobs.board.take(epoch)

    def table(self, node: OperatorNode, name: str, epoch: int) -> DataFrame:
        """The rows of one of an operator's tables."""
        return self._run(node, "read", epoch, name)

    def clean(self, epoch: int) -> None:
        """Remove the arenas."""
        for node in self._jobs.operators:
            with contextlib.suppress(Exception):  # best effort: the executors may be gone
                discard(self._run(node, "clean", epoch), 0)

    def _run(self, node: OperatorNode, purpose: Purpose, epoch: int, table: str = "") -> DataFrame:
        return self._task(node, self._jobs.punctuation(node), epoch, purpose, table)
