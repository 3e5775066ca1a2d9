"""The function that Spark runs for every slot in every epoch: a thin coat around ``SlotEpoch``."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tether.core.errors import TetherError
from tether.spark.control import encode_status
from tether.spark.executor import executor_process
from tether.spark.plan import SLOT
from tether.spark.residents import Resident
from tether.spark.slot import SlotEpoch
from tether.state.identity import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tether.spark.program import Program
    from tether.spark.statuses import StatusBoard


class MisplacedRowsError(TetherError):
    """Rows came to a partition that is not their slot: Spark left our shuffle out of the plan."""

    code = "misplaced-rows"


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
        slot, owner = context.partitionId(), Owner.of(executor_process())
        work = SlotEpoch(self._program, slot, uuid.uuid4().hex, owner)
        purpose = self._program.control.purpose
        if purpose != "epoch":
            for _ in batches:  # a worker that leaves input unread is not used again by Spark
                pass
        if purpose == "clean":
            Resident(self._program, slot, owner).remove()
        elif purpose == "flush":
            work.flush()
        elif purpose == "read":
            yield from work.read()
        else:
            yield from work.run(_own_rows(batches, slot))
        if work.status is not None:
            self._board.report(slot, encode_status(work.status))


def _own_rows(batches: Iterator[pa.RecordBatch], slot: int) -> Iterator[pa.RecordBatch]:
    """The rows without their slot column, once it is sure that they belong here."""
    for batch in batches:
        where = batch.schema.get_field_index(SLOT)
        slots = batch.column(where).to_numpy()
        if batch.num_rows and not ((slots == slot).all()):
            raise MisplacedRowsError(
                f"Rows of slot {slots[slots != slot][0]} came to the partition of slot {slot}.",
                why="Spark did not shuffle the rows as the plan asked.",
                do="The query shuffles them itself from now on; if you read this, report it.",
            )
        if batch.num_rows:
            yield batch.remove_column(where)
