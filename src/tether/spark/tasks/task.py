"""The function that Spark runs for every slot in every epoch: a thin coat around a slot's work."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tether.core.graph import SlotId
from tether.engine.messages import encode_status
from tether.engine.slot.beside import SlotBesideEpochs
from tether.engine.slot.misplaced import misplaced
from tether.engine.slot.residents import ArenaHost
from tether.spark.tasks.own_rows import own_rows
from tether.state.executor import executor_process
from tether.state.identity import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tether.engine.slot.program import Program
    from tether.spark.tasks.statuses import StatusBoard


class SlotTask:
    """What ``mapInArrow`` calls with a partition's Arrow batches.

    Args:
        program: What all slots share in this epoch.
        board: Where the slot reports to.
    """

    def __init__(self, program: Program, board: StatusBoard) -> None:
        self._program, self._board = program, board

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slot whose partition this is."""
        context = TaskContext.get()
        assert context is not None, "SlotTask runs inside a Spark task"
        slot, host = context.partitionId(), ArenaHost(Owner.of(executor_process()))
        if slot >= self._program.control.slots:
            raise misplaced(f"There is a partition {slot}, beyond the last slot.")
        task = f"{self._program.control.run}/{context.taskAttemptId()}"
        work = SlotBesideEpochs(self._program, slot, uuid.uuid4().hex, host, task)
        purpose = self._program.control.purpose
        if purpose != "epoch":
            for _ in batches:  # a worker that leaves input unread is not used again by Spark
                pass
        if purpose == "clean":
            host.forget(self._program, slot)
        elif purpose == "flush":
            work.flush()
        elif purpose == "probe":
            work.probe()
        elif purpose == "read":
            yield from work.read()
        elif slot in self._program.control.kept:
            work.stay(batches)
        elif slot in self._program.control.skipped:
            work.skip(batches)
        else:
            yield from work.run(own_rows(batches, slot))
        if work.status is not None:
            who = SlotId(self._program.control.operator, slot)
            self._board.report(who, encode_status(work.status))
