"""The task of one partition: the work of a slot, as its voice or as a silent copy, or nothing.

Without copies partition i is slot i. With copies partitions are seats; see
:mod:`tether.protocols.copies`. The same for every host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import BackupError
from tether.core.graph import SlotId
from tether.core.ids import Seat, Slot
from tether.engine.messages import NO_STATE
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.ahead import SlotAhead
from tether.engine.slot.misplaced import misplaced
from tether.protocols.copies import IDLE, silent_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from tether.engine.messages import SlotStatus
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import SlotHost

    Rows = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class SeatWork:
    """One attempt at the task of one partition.

    Args:
        program: What all slots of the operator share.
        seat: Number of the partition.
        attempt: Unique id of this attempt.
        host: Where it runs.
        task: The host's id of the task, where there is one.
        own: Removes columns from the partition's rows that the operator must not get, where there are
            any.
    """

    def __init__(
        self,
        program: Program,
        seat: Seat,
        attempt: str,
        host: SlotHost,
        task: str = "",
        *,
        own: Rows | None = None,
    ) -> None:
        control = program.control
        seats = control.seats
        if seat >= (control.slots if seats is None else len(seats.runs)):
            raise misplaced(f"There is a partition {seat}, beyond the last slot.")
        self._program, self._seat, self._host, self._own = program, seat, host, own
        self._slot = Slot(seat) if seats is None else seats.runs[seat]
        self._silent = seats is not None and not seats.speaks(seat)
        self._empty = False
        if self._silent:
            # A copy takes no part in snapshots, as the seat that speaks for its slot does. It never
            # continues from an old snapshot, because it would not be a copy then. Planned faults strike
            # slots only.
            quiet = msgspec.structs.replace(control, snapshot=None, stale=frozenset())
            self._program = replace(program, control=quiet, faults=())
        self._work = SlotAhead(
            self._program, Slot(max(0, self._slot)), attempt, host, task, seat=seat
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Carry out the orders; yield what the slot emits."""
        control = self._program.control
        if self._silent:
            self._forget_former()
            self._listen(batches)
        elif control.purpose != "epoch":
            for _ in batches:  # a worker that leaves input unread is not used again by Spark
                pass
            yield from self._beside()
        elif control.ahead is not None:
            yield from self._work.run_ahead(self._rows(batches))
        elif self._slot in control.kept:
            self._work.stay(batches)
        elif self._slot in control.skipped:
            self._work.skip(batches)
        else:
            yield from self._work.run(self._rows(batches))

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches if self._own is None else self._own(batches)

    def _beside(self) -> Iterator[pa.RecordBatch]:
        """What a slot does between epochs."""
        purpose = self._program.control.purpose
        if purpose == "clean":
            self._forget(self._slot)
        elif purpose == "flush":
            self._work.flush()
        elif purpose == "probe":
            self._work.probe()
        elif purpose == "copy":
            self._work.copy()
        elif purpose == "read":
            yield from self._work.read()

    def _listen(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Do the same work as the slot's voice, without output."""
        control = self._program.control
        rows = iter(batches)
        try:
            if self._slot == IDLE:
                if control.purpose == "epoch":
                    self._work.skip(rows)
            elif control.purpose == "epoch":
                self._empty = self._slot in control.skipped
                if not self._empty:
                    for _ in self._work.run(self._rows(rows)):
                        pass
            elif control.purpose == "clean":
                self._forget(self._slot)
            elif control.purpose == "probe":
                self._work.probe()
        except (LostStateError, BackupError):
            self._empty = True  # until a snapshot fills it
        for _ in rows:  # a worker that leaves input unread is not used again by Spark
            pass
        if self._empty and control.purpose == "epoch":
            self._work.skip(())  # only to report on which executor it is

    def _forget_former(self) -> None:
        """If the seat was given to another slot, remove the state of the former one."""
        seats = self._program.control.seats
        former = None if seats is None else seats.left.get(self._seat)
        if former is not None:
            self._forget(former)

    def _forget(self, slot: Slot) -> None:
        number = self._program.control.resident_id(slot, self._seat)
        self._host.forget(self._program, number)

    @property
    def report(self) -> tuple[SlotId, SlotStatus] | None:
        """The report, if there is one; a copy reports under a number above those of all slots."""
        status, control = self._work.status, self._program.control
        if status is None:
            return None
        if self._empty or self._slot == IDLE:
            status = msgspec.structs.replace(status, lineage=NO_STATE)
        number = silent_number(control.slots, self._seat) if self._silent else self._slot
        return SlotId(control.operator, number), msgspec.structs.replace(status, slot=number)
