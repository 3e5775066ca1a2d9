"""Resident state on the heap of one process: for local pipelines and the simulator.

It has the same primitives, journal and rollback as an arena, but other processes cannot reach it. If a
task raises in the middle of an epoch, the next task finds the epoch half applied and rolls it back.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tether.core.ids import ResidentId, Slot
from tether.engine.messages import PartAtWork, PartDone
from tether.engine.slot.resident import BoundState, Resident
from tether.state.header import Phase
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.frames import FrameHeader
    from tether.engine.slot.program import Program
    from tether.operator import Operator

_Key = tuple[str, int]


@dataclass
class _Kept:
    """The resident data of one slot."""

    bound: BoundState | None = None
    note: bytes = b""
    written: dict[str, PartDone] = field(default_factory=dict)
    """Frames that were written while later epochs were to run, by attempt."""


class HeapHost:
    """Keeps the resident states of slots in this process.

    Args:
        operators: By name, as they were bound to their input; every slot uses its own copy.
        executor: What reports call it.
    """

    def __init__(self, operators: Mapping[str, Operator], executor: str = "here") -> None:
        self._operators, self._executor = operators, executor
        self._kept: dict[_Key, _Kept] = {}

    @property
    def executor(self) -> str:
        """What reports call it."""
        return self._executor

    def at(self, executor: str) -> HeapHost:
        """The same states, for a task on another executor."""
        there = HeapHost(self._operators, executor)
        there._kept = self._kept
        return there

    @contextmanager
    def attached(self, program: Program, resident: ResidentId) -> Iterator[HeapResident]:
        """A slot's resident state."""
        kept = self._kept.setdefault((program.control.operator, resident), _Kept())
        yield HeapResident(program, kept, self._operators[program.control.operator])

    def forget(self, program: Program, resident: ResidentId) -> None:
        """Remove a slot's resident state."""
        self._kept.pop((program.control.operator, resident), None)

    def lose(self, operator: str, slot: Slot) -> None:
        """Remove a slot's resident state."""
        self._kept.pop((operator, slot), None)

    def lose_resident(self, operator: str, resident: ResidentId) -> None:
        """Remove the resident state of a seat."""
        self._kept.pop((operator, resident), None)

    def found_resident(self, operator: str, resident: ResidentId) -> BoundState | None:
        """The state and operator of a seat, if it is resident."""
        kept = self._kept.get((operator, resident))
        return None if kept is None else kept.bound

    def lose_all(self) -> None:
        """Remove all resident states."""
        self._kept.clear()

    def found(self, operator: str, slot: Slot) -> BoundState | None:
        """A slot's state and operator, if it is resident."""
        kept = self._kept.get((operator, slot))
        return None if kept is None else kept.bound


class HeapResident(Resident):
    """A resident state on the heap."""

    def __init__(self, program: Program, kept: _Kept, operator: Operator) -> None:
        super().__init__()
        self._program, self._kept, self._operator = program, kept, operator
        if kept.bound is None:
            self.reason = "no resident state here"
        elif kept.bound.state.phase == Phase.RESTORING:
            self.reason, kept.bound = "the task that was restoring it failed", None

    @property
    def bound(self) -> BoundState | None:
        """The state and its operator."""
        return self._kept.bound

    @property
    def note(self) -> bytes:
        """What the last task left."""
        return self._kept.note

    def leave_note(self, note: bytes) -> None:
        """Replace it."""
        self._kept.note = note

    def private_view(self) -> BoundState:
        """A copy of the state and of the operator that is bound to it."""
        return self._bind(self.state.heap_copy())

    def create(self) -> SlotState:
        """Make a new, empty state; its restore has begun."""
        state = SlotState.heap(track=self._program.policy.keeps_backups)
        self._kept.bound = self._bind(state)
        self._kept.note = b""
        self._kept.written.clear()
        state.begin_restore()
        return state

    def _bind(self, state: SlotState) -> BoundState:
        operator = copy.copy(self._operator)
        operator.setup(state)
        return BoundState(state, operator)

    def remove(self) -> None:
        """Remove the state."""
        self._kept.bound = None

    def write_later(
        self,
        program: Program,
        header: FrameHeader,
        parts: Mapping[str, Sequence[pa.RecordBatch]],
        number: int,
    ) -> PartAtWork:
        """Write it at once. A later epoch asks for the result, as with a writer in the background."""
        try:
            program.reach("during-writing", header.slot)
            done = PartDone(number=number, ref=program.open_store().append(header, parts))
        except Exception as error:  # any failure is reported as a writer in the background would
            done = PartDone(number=number, failed=f"{type(error).__name__}: {error}")
        self._kept.written[header.attempt] = done
        return PartAtWork(number=number, attempt=header.attempt, writer=(0, ""))

    def look(self, work: PartAtWork) -> PartDone | None:
        """How the writing ended."""
        lost = PartDone(number=work.number, failed="the process that was writing it died")
        return self._kept.written.get(work.attempt, lost)
