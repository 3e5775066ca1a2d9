"""What a slot writes to the backup store: backups of its state, parts of snapshots, logged rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import msgspec
import pyarrow as pa

from tether.backup.frames import FrameHeader
from tether.core.errors import BackupError
from tether.core.ids import FrameNumber, Slot
from tether.engine.messages import PartDone, PartTaken, WrittenFrame
from tether.state.divergence import sum_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.backup.frames import FrameKind, FrameRef
    from tether.engine.messages import SlotMemory
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import Resident
    from tether.operator import EndedWindow
    from tether.policies.instructions import BackUpState, Cause, TakePart
    from tether.state.primitive import Export

COMPACT_RATIO = 2.0
"""A full frame is written when the partial ones since the last full one have this many times its bytes.
Then compaction adds at most half to all writes, and a recovery reads at most three times a full
frame."""

COMPACT_FLOOR_BYTES = 1 << 20
"""Logs below this size are not compacted."""

EPOCHS_PER_LOG = 16
"""Number of epochs whose rows share one log."""

ROWS, FEEDBACK, ENDED = "rows", "feedback", "ended"
"""Parts of a frame of logged items: rows, feedback items, windows that event time ended."""


class SlotWriter:
    """Writes frames for one slot in one epoch.

    Args:
        program: What all slots of the operator share.
        slot: Number of the slot.
        attempt: Unique id of this task attempt.
    """

    def __init__(self, program: Program, slot: Slot, attempt: str) -> None:
        self.program, self._slot, self._attempt = program, slot, attempt

    def header(
        self,
        memory: SlotMemory,
        kind: FrameKind,
        cause: Cause,
        entries: int,
        *,
        before: float = 0.0,
        after: float = 0.0,
        carried: float | None = None,
    ) -> FrameHeader:
        """The header of the slot's next frame; it carries what the divergence was unless told."""
        control = self.program.control
        return FrameHeader(
            query=control.query,
            operator=control.operator,
            slot=self._slot,
            epoch=control.epoch,
            sequence=FrameNumber(memory.sequence + 1),
            failures=memory.failures,
            kind=kind,
            cause=cause,
            attempt=self._attempt,
            lineage=memory.lineage,
            divergence_before=before,
            divergence_after=after,
            carried=before if carried is None else carried,
            entries=entries,
            written_at=time.time(),
            records=control.log_end.number if control.log_end else 0,
        )

    def log_rows(
        self,
        memory: SlotMemory,
        rows: Sequence[pa.RecordBatch],
        feedback: Sequence[pa.RecordBatch],
        ended: Sequence[EndedWindow],
    ) -> tuple[FrameRef, SlotMemory]:
        """Make the input of the slot durable before it is processed.

        Args:
            memory: What the slot remembers.
            rows: The epoch's rows.
            feedback: Feedback items for the operator.
            ended: Windows that event time has ended, which no later epoch can find out again.
        """
        control = self.program.control
        items = sum(batch.num_rows for batch in (*rows, *feedback))
        parts: dict[str, Sequence[pa.RecordBatch]] = {ROWS: rows, FEEDBACK: feedback}
        if ended:
            starts, ends = [w.start for w in ended], [w.end for w in ended]
            parts[ENDED] = [pa.RecordBatch.from_pydict({"start": starts, "end": ends})]
        parts = {name: batches for name, batches in parts.items() if batches}
        header = self.header(memory, "items", "items", items)
        # Separate logs of a few epochs each, so that dropped rows are also deleted from disk.
        log = f"{memory.lineage}-rows-{control.epoch // EPOCHS_PER_LOG}"
        header = msgspec.structs.replace(header, lineage=log)
        ref = self.program.open_store().append(header, parts)
        self.program.reach("after-log", self._slot)
        return ref, msgspec.structs.replace(memory, sequence=header.sequence)

    def back_up(
        self,
        resident: Resident,
        memory: SlotMemory,
        instruction: BackUpState,
        *,
        whole: bool = False,
    ) -> tuple[WrittenFrame | None, SlotMemory]:
        """Write a frame that brings the divergence to the target, unless it is already reached.

        Args:
            resident: The state.
            memory: What the slot remembers.
            instruction: The policy's.
            whole: Whether to write the whole state, whatever the instruction asks for.
        """
        began = time.perf_counter()
        state = resident.state
        before = state.divergence(exact=True)
        cause = instruction.cause
        whole = whole or self._slot in self.program.control.in_doubt
        if whole or needs_compaction(memory):
            exports = state.export_full(0.0 if whole else instruction.rounding)
            cause = cause if whole else "compaction"
        else:
            exports = state.export(instruction.target, instruction.rounding)
        if not exports:
            return None, memory
        after = state.divergence(exact=True)
        kind, entries = kind_of(resident, exports), _entries(exports)
        # Who must pass over this frame is away from it by what it would have brought nearer, and by what
        # it has rounded off: later frames are told from the rounded numbers.
        carried = sum_up((before, 0.0 if whole else instruction.rounding))
        header = self.header(
            memory, kind, cause, entries, before=before, after=after, carried=carried
        )
        parts = {name: export.batches for name, export in exports.items()}
        ref = self.program.open_store().append(header, parts)
        self.program.reach("during-backup", self._slot)
        if cause == "compaction":
            self.program.reach("during-compaction", self._slot)
        frame = WrittenFrame(
            ref=ref,
            kind=kind,
            cause=cause,
            entries=entries,
            carried=carried,
            divergence_before=before,
            divergence_after=after,
            seconds=time.perf_counter() - began,
        )
        return frame, grown(memory, kind, ref.length)

    def take_part(
        self, resident: Resident, memory: SlotMemory, instruction: TakePart
    ) -> tuple[PartTaken, PartDone | None, SlotMemory]:
        """Copy the slot's part of a snapshot, and write it: now, or while later epochs run.

        For the slot's own books it counts as written at once. Should the writing fail, the snapshot
        is given up, and the next part is a whole image: so nothing ever rests on it.
        """
        began = time.perf_counter()
        state, number = resident.state, instruction.number
        whole = instruction.onto is None or needs_compaction(memory)
        before = state.divergence(exact=True)
        exports = state.export_full() if whole else state.export(0.0)
        kind, entries = kind_of(resident, exports), _entries(exports)
        taken = PartTaken(number=number, kind=kind, entries=entries)
        memory = msgspec.structs.replace(memory, part=None)
        # Also if nothing has changed, because the frame carries the slot's memory as well.
        header = self.header(memory, kind, "snapshot", entries, before=before)
        parts = {name: export.batches for name, export in exports.items()}
        if instruction.wait:
            try:
                ref = self.program.open_store().append(header, parts)
            except BackupError as error:  # the snapshot is given up, and the stream continues
                return taken, PartDone(number=number, failed=str(error)), memory
            self.program.reach("during-backup", self._slot)
            done = PartDone(number=number, ref=ref, seconds=time.perf_counter() - began)
            return taken, done, grown(memory, kind, ref.length)
        written = sum(batch.nbytes for batches in parts.values() for batch in batches)
        work = resident.write_later(self.program, header, parts, number)
        self.program.reach("during-backup", self._slot)
        memory = msgspec.structs.replace(grown(memory, kind, written), part=work)
        return taken, None, memory


def needs_compaction(memory: SlotMemory) -> bool:
    """Whether the partial frames since the last full one are larger than the limit."""
    return memory.log_bytes > max(COMPACT_FLOOR_BYTES, COMPACT_RATIO * memory.full_bytes)


def kind_of(resident: Resident, exports: Mapping[str, Export]) -> Literal["full", "partial"]:
    """Whether exports hold the whole state."""
    whole = exports.keys() == resident.state.specs().keys()
    return "full" if whole and all(export.full for export in exports.values()) else "partial"


def _entries(exports: Mapping[str, Export]) -> int:
    return sum(export.entries for export in exports.values())


def grown(memory: SlotMemory, kind: str, length: int) -> SlotMemory:
    """The memory after a frame of ``length`` bytes."""
    full = kind == "full"
    return msgspec.structs.replace(
        memory,
        sequence=FrameNumber(memory.sequence + 1),
        log_bytes=0 if full else memory.log_bytes + length,
        full_bytes=length if full else memory.full_bytes,
    )
