"""The function that Spark runs for every slot in every epoch: a thin coat around a slot's work."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from pyspark import TaskContext

from tether.core.errors import BackupError
from tether.core.graph import SlotId
from tether.core.ids import Seat
from tether.engine.messages import encode_status
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.ahead import SlotAhead
from tether.engine.slot.beside import SlotBesideEpochs
from tether.engine.slot.misplaced import misplaced
from tether.engine.slot.residents import ArenaHost
from tether.protocols.copies import silent_number
from tether.spark.tasks.own_rows import own_rows
from tether.state.executor import own_executor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tether.core.ids import ResidentId, Slot
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
        seat, host = context.partitionId(), ArenaHost(own_executor())
        control = self._program.control
        seats = control.seats
        if seat >= (control.slots if seats is None else len(seats.runs)):
            raise misplaced(f"There is a partition {seat}, beyond the last slot.")
        task = f"{control.run}/{context.taskAttemptId()}"
        if seats is not None and not seats.speaks(seat):
            self._copy(seat, host, task, batches)
            return
        slot = seat if seats is None else seats.runs[seat]
        work = SlotAhead(self._program, slot, uuid.uuid4().hex, host, task, seat=seat)
        if control.purpose == "epoch":
            yield from self._epoch(work, slot, seat, batches)
        else:
            for _ in batches:  # a worker that leaves input unread is not used again by Spark
                pass
            yield from self._beside(work, host, control.resident_id(slot, seat))
        if work.status is not None:
            self._board.report(SlotId(control.operator, slot), encode_status(work.status))

    def _epoch(
        self, work: SlotAhead, slot: Slot, seat: Seat, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run an epoch, or let it pass."""
        control = self._program.control
        if control.ahead is not None:
            yield from work.run_ahead(own_rows(batches, seat))
        elif slot in control.kept:
            work.stay(batches)
        elif slot in control.skipped:
            work.skip(batches)
        else:
            yield from work.run(own_rows(batches, seat))

    def _beside(
        self, work: SlotAhead, host: ArenaHost, arena: ResidentId
    ) -> Iterator[pa.RecordBatch]:
        """What a task does between epochs."""
        purpose = self._program.control.purpose
        if purpose == "clean":
            host.forget(self._program, arena)
        elif purpose == "flush":
            work.flush()
        elif purpose == "probe":
            work.probe()
        elif purpose == "copy":
            work.copy()
        elif purpose == "read":
            yield from work.read()

    def _copy(
        self, seat: Seat, host: ArenaHost, task: str, batches: Iterator[pa.RecordBatch]
    ) -> None:
        """Do as the slot's voice does, and say nothing; report under a number behind all slots."""
        control = self._program.control
        assert control.seats is not None
        # It takes no part in snapshots: those are of slots, and its slot's voice takes one.
        # Faults on purpose are meant for slots.
        quiet = msgspec.structs.replace(control, snapshot=None)
        program = replace(self._program, control=quiet, faults=())
        slot = control.seats.runs[seat]
        work = SlotBesideEpochs(program, slot, uuid.uuid4().hex, host, task, seat=seat)
        try:
            if control.purpose == "epoch":
                for _ in work.run(own_rows(batches, seat)):
                    pass
            elif control.purpose == "clean":
                host.forget(program, control.resident_id(slot, seat))
            elif control.purpose == "probe":
                work.probe()
        except (LostStateError, BackupError):
            pass  # it is empty, and stays so until a snapshot fills it
        for _ in batches:  # a worker that leaves input unread is not used again by Spark
            pass
        if work.status is not None:
            number = silent_number(control.slots, seat)
            status = msgspec.structs.replace(work.status, slot=number)
            self._board.report(SlotId(control.operator, number), encode_status(status))
