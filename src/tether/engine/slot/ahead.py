"""A slot's work ahead of the query, on incomplete input, with state that is dropped later.

DPC 2005 §3.4: to go back to the state before a failure there are two ways, and both are here.

- *checkpoint*: the work is done on a copy of the slot's state, made in memory when the first such rows
  come. The slot's own state stays at the last stable epoch, and can be given the next one at any time.
- *undo*: the work is done in place. It is an epoch that is begun, in one or more steps, and never
  committed. So the journal holds every old value, and the slot's next stable epoch finds an epoch half
  applied and rolls it back, as after a kill.

In both the work belongs to the epoch after the last stable one, and nothing of it becomes durable. A
state that was lost, or left incomplete by a task that died, starts again from the last stable epoch. Its
tentative answers then lack the rows that were given to it before; nothing else is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.ids import GENESIS, Epoch, Lineage, epoch_before
from tether.engine.messages import SlotMemory
from tether.engine.recovery.recover import recover
from tether.engine.slot.beside import SlotBesideEpochs
from tether.engine.slot.interpreter import Draft
from tether.engine.slot.windows import ended_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tether.engine.messages import Ahead, SlotStatus
    from tether.engine.slot.resident import Resident
    from tether.operator import EndedWindow

AT_WORK = -1
"""The turn of a state while a task works on it, and after a task has died in the middle."""


class SlotAhead(SlotBesideEpochs):
    """One slot's work ahead of the query; arguments as for ``SlotEpoch``."""

    @property
    def _ahead(self) -> Ahead:
        assert self._control.ahead is not None
        return self._control.ahead

    def run_ahead(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply incomplete input; yield the operator's output; then set ``status``."""
        if self._program.reach("before-attach", self._slot):
            self._host.forget(self._program, self._resident_id)
        with self._host.attached(self._program, self._resident_id) as resident:
            self._phases.end("attach")
            if self._continues(resident):
                resident.state.begin_step()
            else:
                self._begin_ahead(resident)
            memory = resident.memory()
            resident.remember(msgspec.structs.replace(memory, ahead=(self._ahead.name, AT_WORK)))
            try:
                yield from self._apply(resident.operator, memory, batches)
            except Exception:
                resident.state.rollback()
                raise
            self._program.reach("after-apply", self._slot)
            resident.state.settle()
            memory = msgspec.structs.replace(
                memory,
                items=memory.items + self._applied.rows,
                ahead=(self._ahead.name, self._control.turn),
            )
            resident.remember(memory)
            self.status = self._held(resident, memory)

    def copy(self) -> None:
        """Continue in a copy of the slot's own state, with all changes so far."""
        with self._host.attached(self._program, self._resident_id) as resident:
            resident.copy_own(lambda own: self._last_turn(own) not in (None, AT_WORK))
            if resident.found:
                self.status = self._held(resident, resident.memory())

    # ---- inside --------------------------------------------------------------------------------

    def _held(self, resident: Resident, memory: SlotMemory) -> SlotStatus:
        """The slot's report, with the memory that this work takes beside the slot's own state."""
        status = self._status_of(resident, Draft(memory, self._policy_state(memory)))
        if not self._ahead.in_place:
            return status
        return msgspec.structs.replace(status, resident_bytes=resident.state.journal_bytes())

    def _windows(self, memory: SlotMemory, rows_in: int) -> list[EndedWindow]:
        control = self._control
        epoch = Epoch(control.epoch + (0 if control.ahead is None else control.ahead.step))
        clock = control.clock
        return ended_windows(self._program.window, epoch, memory.items, rows_in, clock)

    def _continues(self, resident: Resident) -> bool:
        """Whether this state has applied all rows that the run has given to the slot so far."""
        # This turn has changed the state already: the task is run a second time.
        return self._last_turn(resident) not in (None, AT_WORK, self._control.turn)

    def _last_turn(self, resident: Resident) -> int | None:
        """The last turn in which this run worked on the state; None if there is none."""
        if not resident.applying or resident.state.epoch != self._control.epoch:
            return None
        known = resident.memory().ahead
        return known[1] if known is not None and known[0] == self._ahead.name else None

    def _begin_ahead(self, resident: Resident) -> None:
        """Bring the state to the end of the last stable epoch, and begin the run ahead."""
        control, base = self._control, epoch_before(self._control.epoch)
        if resident.applying:
            resident.state.rollback()
        if self._ahead.in_place:
            ready = self._own(resident)
        else:
            known = resident.memory().ahead if resident.found else None
            again = known is not None and known[0] == self._ahead.name
            ready = again and resident.state.version == base
            ready = ready or resident.copy_own(self._own)
        self._phases.end("copy")
        memory = resident.memory() if ready else None
        if memory is None and control.epoch == control.first_epoch:
            resident.create()
            resident.finish(base, SlotMemory(lineage=Lineage(self._attempt)))
            memory = resident.memory()
        elif memory is None:
            # A lineage that is never expected, so that the query itself never continues with this state.
            memory = recover(self._program, resident, self._slot, self._attempt).memory
        memory = msgspec.structs.replace(memory, ahead=(self._ahead.name, AT_WORK))
        if not self._ahead.in_place:
            resident.remember(memory)  # set before the epoch begins, so that a rollback keeps it
        resident.state.begin(control.epoch)

    def _own(self, resident: Resident) -> bool:
        """Whether a state is the query's own, as of the last stable epoch."""
        base, lineages = epoch_before(self._control.epoch), self._ahead.lineages
        if not resident.found or resident.applying or resident.state.version != base:
            return False
        return lineages is None or resident.memory().lineage == lineages.get(self._slot, GENESIS)
