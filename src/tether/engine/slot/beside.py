"""What a slot does apart from running epochs: make its state durable, return its rows, or keep it.

After a loss under barrier snapshots only some slots go back, where that is enough (ABS 2015 §5). The
others are probed, and keep their state while epochs that they have applied are run again.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import StaleOutputError
from tether.core.ids import GENESIS, Failures
from tether.engine.messages import SlotStatus
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.epoch import SlotEpoch
from tether.engine.slot.interpreter import Draft, Interpreter
from tether.output import Output
from tether.policies.events import Flushed
from tether.state.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tether.engine.slot.resident import Resident


class SlotBesideEpochs(SlotEpoch):
    """The work of one slot in which no rows are applied; arguments as for ``SlotEpoch``."""

    def flush(self) -> None:
        """Back up what is not durable yet, as of the last committed epoch; then set ``status``.

        The arena is not used after this: what was saved is of a new lineage. Its own state is rolled
        back, so that its account of what is durable stays true.
        """
        with self._at_last_commit() as resident:
            if resident is None:
                return  # there is no state to save: the backup stays the newest
            state, epoch, memory = resident.state, self._control.epoch, resident.memory()
            draft = Draft(memory, self._policy_state(memory))
            divergence = state.divergence(exact=True)
            state.begin(epoch + 1)
            policy = Interpreter(self._writer, resident)
            barrier = self._control.snapshot
            if barrier is not None:  # the flush is part of a snapshot
                policy.tell(draft, self._aligned(barrier))
            else:
                policy.tell(draft, Flushed(epoch=epoch, divergence=divergence))
            draft.memory = msgspec.structs.replace(draft.memory, lineage=self._attempt)
            self.status = self._status_of(resident, draft)
            state.rollback()

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of the table that the control asks for, as of the last committed epoch.

        They are read from a private view, so the current epoch is not disturbed.

        Raises:
            StaleOutputError: The slot is at another epoch by now, or has no state.
        """
        epoch = self._control.epoch
        with self._host.attached(self._program, self._resident_id) as resident:
            view = resident.private_view() if resident.found else None
            if view is not None and (resident.applying or view.state.version == epoch + 1):
                view.state.rollback()
            if view is None or not self._is_current(view.state, view.memory(), epoch):
                raise StaleOutputError(
                    f"The table {self._control.read_table!r} cannot be read as of epoch {epoch}.",
                    why=f"Slot {self._slot} of {self._control.operator!r} "
                    + (f"is at epoch {view.state.version}." if view else f"has {resident.reason}."),
                    do="Call table() again and use its rows at once, between epochs if they are short: "
                    "processAllAvailable() waits for the end of those that have begun.",
                )
            table = view.state[self._control.read_table]
            assert isinstance(table, Table)
            out = Output(self._program.output_schema)
            for batch in table.batches():
                out.emit(batch)
                yield from out.drain()

    @contextmanager
    def _at_last_commit(self) -> Iterator[Resident | None]:
        """The resident state as of the end of the control's epoch; None where it is missing."""
        epoch = self._control.epoch
        with self._host.attached(self._program, self._resident_id) as resident:
            if resident.found and (resident.applying or resident.state.version == epoch + 1):
                resident.state.rollback()
            yield resident if self._usable(resident, epoch) else None

    def probe(self) -> None:
        """Set ``status`` if the resident state is there, as of the last committed epoch."""
        with self._at_last_commit() as resident:
            if resident is not None:
                memory = resident.memory()
                status = self._status_of(resident, Draft(memory, self._policy_state(memory)))
                self.status = msgspec.structs.replace(status, room=resident.room())

    def skip(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Skip the rows of an epoch in a slot that has no state; then set ``status``."""
        control = self._control
        rows = sum(batch.num_rows for batch in batches)
        self.status = SlotStatus(
            operator=control.operator,
            slot=self._slot,
            epoch=control.epoch,
            turn=control.turn,
            attempt=self._attempt,
            executor=self._host.executor,
            lineage=control.expects(self._slot, self._seat) or GENESIS,
            failures=Failures(0),
            losses=Failures(0),
            policy_state=b"",
            under=self._program.terms,
            theta=math.inf,
            divergence=math.inf,
            exact=False,
            rows_in=rows,
            rows_out=0,
            resident_bytes=0,
            rolled_back=False,
            frame=None,
            recovery=None,
            seconds={},
        )

    def stay(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Skip the rows of an epoch that the state has already applied; then set ``status``.

        Raises:
            LostStateError: The state has been lost meanwhile.
        """
        for _ in batches:  # Spark does not reuse a worker that leaves input unread
            pass
        if self._program.reach("before-attach", self._slot):
            self._host.forget(self._program, self._resident_id)
        with self._host.attached(self._program, self._resident_id) as resident:
            if not self._usable(resident, self._control.kept_version):
                raise LostStateError(
                    f"Slot {self._slot} of {self._control.operator!r} has lost its state while "
                    "others were reading the stream again.",
                    why=resident.reason or "The resident state is of another epoch.",
                    do="Nothing: the whole query goes back to its newest complete snapshot.",
                )
            memory = resident.memory()
            self.status = self._status_of(resident, Draft(memory, self._policy_state(memory)))
