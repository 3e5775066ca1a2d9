"""The function that Spark runs for every slot in every epoch: a thin wrapper around a slot's work."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tether.engine.messages import encode_status
from tether.engine.slot.residents import ArenaHost
from tether.engine.slot.seat import SeatWork
from tether.sources.folding.parcels import unpacked
from tether.spark.tasks.own_rows import check_numbers, own_rows
from tether.spark.tasks.pipe import acknowledge_at_once
from tether.state.executor import own_executor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from tether.core.ids import Seat
    from tether.engine.slot.program import Program
    from tether.spark.folding.folding import Parcel
    from tether.spark.tasks.statuses import StatusBoard


class SlotTask:
    """What ``mapInArrow`` calls with a partition's Arrow batches.

    Args:
        program: What all slots share in this epoch.
        board: Receives the slot's report.
        parcels: Rows of the slots that come with the task itself, or are held for it by the driver,
            and do not come with its input.
    """

    def __init__(
        self,
        program: Program,
        board: StatusBoard,
        parcels: Mapping[int, tuple[Parcel, ...]] | None = None,
    ) -> None:
        self.program, self._board, self._parcels = program, board, parcels

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slot, or the copy of one, whose partition this is."""
        acknowledge_at_once()
        context = TaskContext.get()
        assert context is not None, "SlotTask runs inside a Spark task"
        seat, host = context.partitionId(), ArenaHost(own_executor())
        work = SeatWork(
            self.program,
            seat,
            uuid.uuid4().hex,
            host,
            f"{self.program.control.run}/{context.taskAttemptId()}",
            own=lambda rows: self._own(rows, seat),
        )
        yield from work.run(batches)
        if (report := work.report) is not None:
            slot, status = report
            self._board.report(slot, encode_status(status))

    def _own(self, batches: Iterable[pa.RecordBatch], seat: Seat) -> Iterable[pa.RecordBatch]:
        if self._parcels is None:
            return own_rows(batches, seat)
        check_numbers(batches, seat)  # a worker that leaves input unread is not used again by Spark
        seats = self.program.control.seats
        parcels = self._parcels.get(seat if seats is None else seats.runs[seat], ())
        return unpacked(one if isinstance(one, bytes) else one.taken() for one in parcels)
