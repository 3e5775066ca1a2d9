"""Carries out the instructions of policies: the only place that does, for all policies and hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import TetherError
from tether.engine.writing.early import abandon_early, begin_early
from tether.engine.writing.writer import needs_compaction
from tether.policies.instructions import BackUpState, LogRows, RecordFailures, TakePart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from tether.backup.frames import FrameRef
    from tether.engine.messages import PartDone, PartTaken, SlotMemory, WrittenFrame
    from tether.engine.slot.resident import Resident
    from tether.engine.writing.writer import SlotWriter
    from tether.operator import EndedWindow
    from tether.policies.events import Event


@dataclass
class Arrived:
    """The input of a slot for an epoch, where it must be logged before it is processed."""

    rows: Sequence[pa.RecordBatch] = ()
    feedback: Sequence[pa.RecordBatch] = ()
    ended: Sequence[EndedWindow] = ()
    """Windows ended by event time. They are logged because a later epoch could not derive them again."""

    @property
    def items(self) -> int:
        """Number of things to log."""
        rows = sum(int(batch.num_rows) for batch in (*self.rows, *self.feedback))
        return rows + len(self.ended)


@dataclass
class Draft:
    """The result of a slot's epoch so far. It counts when the epoch is committed."""

    memory: SlotMemory
    policy_state: Any
    arrived: Arrived = field(default_factory=Arrived)
    frame: WrittenFrame | None = None
    """The backup that this epoch names; an epoch names one at most."""
    logged: FrameRef | None = None
    part: PartTaken | None = None
    part_done: PartDone | None = None
    must_record: bool = False
    """Whether the epoch may be committed only with a record of this slot."""


def unknown_instruction(policy: str, instruction: object) -> TetherError:
    """The error for an instruction of a policy that is not known here."""
    return TetherError(
        f"The policy {policy} asked for {type(instruction).__name__}.",
        why="The engine does not know this instruction.",
        do="Use instructions of tether.policies.instructions; check a policy of your own with "
        "tether.testing.check_policy.",
    )


class Interpreter:
    """Passes events to a slot's policy, and carries out its instructions.

    Args:
        writer: Writes the slot's frames.
        resident: The slot's state.
    """

    def __init__(self, writer: SlotWriter, resident: Resident) -> None:
        self._writer, self._resident = writer, resident

    def tell(self, draft: Draft, event: Event) -> None:
        """Pass an event to the policy, and carry out its instructions in order.

        Raises:
            TetherError: It gave an instruction that is not known.
        """
        program = self._writer.program
        draft.policy_state, asked = program.policy.step(
            draft.policy_state, event, program.placement
        )
        self.carry_out(draft, asked)

    def carry_out(self, draft: Draft, instructions: Iterable[object]) -> None:
        """Carry out instructions, in order."""
        for instruction in instructions:
            match instruction:
                case BackUpState():
                    self._back_up(draft, instruction)
                case TakePart():
                    self._take_part(draft, instruction)
                case LogRows():
                    arrived = draft.arrived
                    draft.logged, draft.memory = self._writer.log_rows(
                        draft.memory, arrived.rows, arrived.feedback, arrived.ended
                    )
                case RecordFailures():
                    # The slot's report carries the policy's state; the epoch's record makes it durable.
                    draft.must_record = True
                case _:
                    raise unknown_instruction(self._writer.program.policy.name, instruction)

    def back_up_whole(self, draft: Draft, instruction: BackUpState) -> None:
        """Write the whole state, whatever the instruction asks for."""
        draft.memory = abandon_early(self._resident, draft.memory)
        draft.frame, draft.memory = self._writer.back_up(
            self._resident, draft.memory, instruction, whole=True
        )

    def _back_up(self, draft: Draft, instruction: BackUpState) -> None:
        """Write a backup, or begin to write it."""
        resident, memory = self._resident, draft.memory
        if not instruction.wait and not needs_compaction(memory):
            draft.memory = begin_early(self._writer, resident, memory, instruction)
            return
        memory = abandon_early(resident, memory)
        # An epoch names one frame of a slot. Another one can replace it only if it is a whole image.
        whole = draft.frame is not None
        frame, draft.memory = self._writer.back_up(resident, memory, instruction, whole=whole)
        draft.frame = frame or draft.frame

    def _take_part(self, draft: Draft, instruction: TakePart) -> None:
        barrier = self._writer.program.control.snapshot
        waits = barrier is not None and barrier.waits
        taking = msgspec.structs.replace(instruction, wait=instruction.wait or waits)
        # An earlier part is not reported any more, because its snapshot has been given up.
        draft.part, draft.part_done, draft.memory = self._writer.take_part(
            self._resident, draft.memory, taking
        )
