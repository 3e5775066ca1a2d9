"""The epoch protocol of one slot, step by step. Knows nothing of Spark: rows in, rows out.

1. attach: find the resident state. Its version is the last epoch applied. One behind the epoch: go
   on. This epoch already, or half of it: a retry; roll back. Missing, older, or of another lineage:
   a loss; recover.
2. process the rows. Every touched entry's old value is in the journal before it changes.
3. commit: the policy says what must be durable before the task may succeed. Then the version
   becomes this epoch.
4. report to the driver, which commits the epoch once all slots have reported.

A process may die between any two instructions: the next attach finds either the end of an epoch or
one that can be rolled back to it.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from tether.backup.frames import FrameHeader
from tether.core.errors import ArenaError, OperatorError, TetherError
from tether.core.policy import BackUpState, EpochApplied, Flushed, SlotPolicyState, WindowEnd
from tether.core.windows import Hopping
from tether.operator import EndedWindow
from tether.output import Output
from tether.spark.control import RecoveryReport, SlotMemory, SlotStatus, WrittenFrame
from tether.spark.event_time import Span, joined, span_of
from tether.spark.executor import executor_name
from tether.spark.faults import reach
from tether.spark.feedback import pack_items, unpack_items
from tether.spark.misplaced import MisplacedRowsError, misplaced
from tether.spark.phases import Phases
from tether.spark.policy_codec import decode_policy_state, encode_policy_state
from tether.spark.recovery import recover
from tether.spark.residents import Resident, attached
from tether.state.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tether.spark.program import Program
    from tether.state.identity import Owner

COMPACT_RATIO = 2.0
"""A full frame is written when the partial ones since the last hold so many times its bytes: then
all writes together cost at most half as much again, and a recovery reads at most three times it."""

MOST_ENDS = 10_000
"""Most windows that one epoch ends: rows older than that are late."""

COMPACT_FLOOR_BYTES = 1 << 20
"""Logs below this are never worth compacting."""


class SlotEpoch:
    """One slot's work in one epoch.

    Args:
        program: What all slots of the operator share: control, policy, store, schemas.
        slot: Number of the slot.
        attempt: Unique id of this task attempt.
        owner: The executor's process; its death ends an executor-scoped arena.
        task: Spark's id of the task, where there is one.
    """

    def __init__(
        self, program: Program, slot: int, attempt: str, owner: Owner, task: str = ""
    ) -> None:
        self._program, self._slot, self._attempt, self._owner = program, slot, attempt, owner
        self._control, self._policy, self._task = program.control, program.policy, task
        self._placement = program.placement
        self._phases = Phases()
        self._rolled_back = False
        self._recovery: RecoveryReport | None = None
        self._event_times: Span | None = None
        self._ended: list[EndedWindow] = []
        self._feedback = b""
        self.status: SlotStatus | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the epoch to the slot's state; give the operator's output; then set ``status``."""
        epoch = self._control.epoch
        if reach(self._program.faults, "before-attach", self._slot, epoch):
            Resident(self._program, self._slot, self._owner).remove()
        with attached(self._program, self._slot, self._owner) as resident:
            self._phases.end("attach")
            memory = self._ready(resident)
            operator = resident.operator
            out = Output(self._program.output_schema, self._program.feedback_schema)
            rows_in = 0
            try:
                for items in unpack_items(self._control.feedback):
                    operator.on_feedback(items, out)
                self._phases.end("process")
                for arrived in batches:
                    rows_in += arrived.num_rows
                    self._phases.end("wait")
                    batch = self._timed(arrived)
                    operator.process(batch, out)
                    self._phases.end("process")
                    reach(self._program.faults, "halfway", self._slot, epoch)
                    yield from out.drain()
                self._phases.end("wait")
                operator.on_epoch_end(out)
                self._ended = self._ended_windows(memory, rows_in)
                for window in self._ended:
                    operator.on_window_end(window, out)
                self._feedback = pack_items(out.drain_feedback())
                self._phases.end("process")
            except Exception as error:
                resident.state.rollback()
                raise self._blamed(error) from error
            yield from out.drain()
            self._phases.end("wait")
            reach(self._program.faults, "after-apply", self._slot, epoch)
            self._commit(resident, memory, rows_in, out.rows)

    def flush(self) -> None:
        """Make durable whatever is not, as of the last committed epoch; then set ``status``.

        The arena is not used after this: its state is of another lineage from here on, and is
        rolled back, so that what it thinks is durable stays true of its own.
        """
        with self._at_last_commit() as resident:
            if resident is None:
                return  # nothing here to save: the backup is all there is
            state, epoch = resident.state, self._control.epoch
            memory, divergence = resident.memory(), state.divergence(exact=True)
            policy_state = self._policy_state(memory)
            _, instructions = self._policy.step(
                policy_state, Flushed(epoch=epoch, divergence=divergence), self._placement
            )
            state.begin(epoch + 1)
            frame = None
            for instruction in instructions:
                if isinstance(instruction, BackUpState):
                    frame, memory = self._back_up(resident, memory, instruction)
            memory = msgspec.structs.replace(memory, lineage=self._attempt)
            self._report(resident, memory, frame, policy_state)
            state.rollback()

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of the table that the control asks for, as of the last committed epoch."""
        with self._at_last_commit() as resident:
            if resident is not None:
                table = resident.state[self._control.read_table]
                assert isinstance(table, Table)
                out = Output(self._program.output_schema)
                for batch in table.batches():
                    out.emit(batch)
                    yield from out.drain()

    @contextmanager
    def _at_last_commit(self) -> Iterator[Resident | None]:
        """The resident state at the end of the control's epoch; None where it is not there."""
        epoch = self._control.epoch
        with attached(self._program, self._slot, self._owner) as resident:
            if resident.found and (resident.applying or resident.state.version == epoch + 1):
                resident.state.rollback()
            yield resident if self._usable(resident, epoch) else None

    # ---- 1. attach -----------------------------------------------------------------------------

    def _ready(self, resident: Resident) -> SlotMemory:
        """Bring the resident state to the end of the epoch before, and open this one."""
        control = self._control
        if resident.found and (resident.applying or resident.state.version == control.epoch):
            if self._task and resident.memory().task == self._task:
                raise misplaced(f"One task has two partitions for slot {self._slot}.")
            resident.state.rollback()
            self._rolled_back = True
            self._phases.end("rollback")
        if self._usable(resident, control.epoch - 1):
            resident.state.begin(control.epoch)
            return resident.memory()
        if control.epoch == control.first_epoch:
            resident.create()
            resident.finish(control.epoch - 1, SlotMemory())
            resident.state.begin(control.epoch)
            self._phases.end("create")
            return resident.memory()
        recovered = recover(self._program, resident, self._slot, self._attempt)
        self._recovery = recovered.report
        for phase, seconds in recovered.report.seconds.items():
            self._phases.add(f"recover.{phase}", seconds)
        resident.state.begin(control.epoch)
        if recovered.loss is not None:
            try:
                resident.operator.on_recover(recovered.loss)
            except Exception as error:
                resident.state.rollback()
                raise self._blamed(error) from error
        self._phases.restart()
        reach(self._program.faults, "during-recovery", self._slot, control.epoch)
        return recovered.memory

    def _usable(self, resident: Resident, version: int) -> bool:
        """Whether the resident state is the one that the query goes on with."""
        if not resident.found or resident.state.version != version:
            return False
        expected = self._control.expects(self._slot)
        return expected is None or resident.memory().lineage == expected

    # ---- 2. windows ----------------------------------------------------------------------------

    def _timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the operator is to see it, once its newest event time is noted."""
        name = self._program.event_time
        if name is None:
            return batch
        where = batch.schema.get_field_index(name)
        self._event_times = joined(self._event_times, span_of(batch.column(where)))
        return batch.remove_column(where) if self._program.drops_event_time else batch

    def _ended_windows(self, memory: SlotMemory, rows_in: int) -> list[EndedWindow]:
        """Hopping windows that are complete at the end of this epoch."""
        window, clock = self._program.window, self._control.clock
        if not isinstance(window, Hopping):
            return []
        if window.by == "epochs":
            after, upto = float(self._control.epoch), float(self._control.epoch + 1)
        elif window.by == "items":
            after, upto = float(memory.items), float(memory.items + rows_in)
        elif clock.watermark is None or clock.passed is None:
            return []
        else:
            # One row with a time of long ago must not end millions of windows.
            after = max(clock.passed, clock.watermark - MOST_ENDS * window.length)
            upto = clock.watermark
        return [
            EndedWindow(start=end - window.length, end=end, by=window.by)
            for end in window.ends(after=after, upto=upto)
        ]

    # ---- 3. commit -----------------------------------------------------------------------------

    def _commit(self, resident: Resident, memory: SlotMemory, rows_in: int, rows_out: int) -> None:
        state, epoch = resident.state, self._control.epoch
        policy_state = self._policy_state(memory)
        theta = self._policy.threshold(policy_state, self._placement)
        divergence = state.divergence()
        if divergence > theta:
            divergence = state.divergence(exact=True)
        policy_state, instructions = self._policy.step(
            policy_state,
            EpochApplied(
                epoch=epoch,
                divergence=divergence,
                items=rows_in,
                newest_event_time=self._newest_known(),
                watermark=self._control.clock.watermark,
            ),
            self._placement,
        )
        for window in self._ended:
            # The backup that was just asked for stands: what windows give back, later epochs use.
            policy_state, _ = self._policy.step(
                policy_state, WindowEnd(epoch=epoch, end=window.end), self._placement
            )
        memory = msgspec.structs.replace(memory, items=memory.items + rows_in, task=self._task)
        memory = msgspec.structs.replace(memory, policy_state=encode_policy_state(policy_state))
        frame = None
        for instruction in instructions:
            if isinstance(instruction, BackUpState):
                frame, memory = self._back_up(resident, memory, instruction)
        self._phases.end("backup")
        resident.remember(memory)
        state.commit(epoch)
        reach(self._program.faults, "after-commit", self._slot, epoch)
        self._phases.end("commit")
        self._report(resident, memory, frame, policy_state, rows_in=rows_in, rows_out=rows_out)

    def _back_up(
        self, resident: Resident, memory: SlotMemory, instruction: BackUpState
    ) -> tuple[WrittenFrame | None, SlotMemory]:
        """Write a frame that brings the divergence to the target; nothing if it is there already."""
        began = time.perf_counter()
        state = resident.state
        before = state.divergence(exact=True)
        cause: str = instruction.cause
        if memory.log_bytes > max(COMPACT_FLOOR_BYTES, COMPACT_RATIO * memory.full_bytes):
            exports, cause = state.export_full(), "compaction"
        else:
            exports = state.export(instruction.target)
        if not exports:
            return None, memory
        after = state.divergence(exact=True)
        full = exports.keys() == state.specs().keys() and all(e.full for e in exports.values())
        entries = sum(export.entries for export in exports.values())
        kind: Literal["full", "partial"] = "full" if full else "partial"
        header = FrameHeader(
            query=self._control.query,
            operator=self._control.operator,
            slot=self._slot,
            epoch=self._control.epoch,
            sequence=memory.sequence + 1,
            failures=memory.failures,
            kind=kind,
            cause=cause,
            attempt=self._attempt,
            lineage=memory.lineage,
            divergence_before=before,
            divergence_after=after,
            carried=before,
            entries=entries,
            written_at=time.time(),
        )
        parts = {name: export.batches for name, export in exports.items()}
        ref = self._program.open_store().append(header, parts)
        reach(self._program.faults, "during-backup", self._slot, self._control.epoch)
        memory = msgspec.structs.replace(
            memory,
            sequence=header.sequence,
            log_bytes=0 if full else memory.log_bytes + ref.length,
            full_bytes=ref.length if full else memory.full_bytes,
        )
        frame = WrittenFrame(
            ref=ref,
            kind=kind,
            cause=cause,
            entries=entries,
            carried=before,
            divergence_before=before,
            divergence_after=after,
            seconds=time.perf_counter() - began,
        )
        return frame, memory

    def _report(
        self,
        resident: Resident,
        memory: SlotMemory,
        frame: WrittenFrame | None,
        policy_state: SlotPolicyState,
        *,
        rows_in: int = 0,
        rows_out: int = 0,
    ) -> None:
        state = resident.state
        theta = self._policy.threshold(policy_state, self._placement)
        divergence = state.divergence() if self._policy.keeps_backups else math.inf
        if self._policy.keeps_backups and divergence > theta:
            divergence = state.divergence(exact=True)
            if divergence > theta:
                # A broken promise must never be committed silently.
                raise ArenaError(
                    f"Slot {self._slot} of {self._control.operator} would end epoch "
                    f"{self._control.epoch} with divergence {divergence}, above its threshold {theta}.",
                    why="The backup did not bring the divergence down: a defect of a state primitive.",
                    do="Please report it with the query's story.",
                )
        self.status = SlotStatus(
            operator=self._control.operator,
            slot=self._slot,
            epoch=self._control.epoch,
            attempt=self._attempt,
            executor=executor_name(self._owner),
            lineage=memory.lineage,
            failures=memory.failures,
            policy_state=encode_policy_state(policy_state),
            theta=theta,
            divergence=divergence,
            exact=self._policy.keeps_backups and state.dirty_entries() == 0,
            rows_in=rows_in,
            rows_out=rows_out,
            resident_bytes=state.resident_bytes(),
            rolled_back=self._rolled_back,
            frame=frame,
            recovery=self._recovery,
            seconds=self._phases.seconds,
            feedback=self._feedback,
            feedback_epoch=self._control.feedback_epoch,
            event_times=self._event_times,
            windows_ended=len(self._ended),
        )

    def _newest_known(self) -> float | None:
        known = self._control.clock.newest
        span = joined(self._event_times, None if known is None else (known, known))
        return None if span is None else span[1]

    def _policy_state(self, memory: SlotMemory) -> SlotPolicyState:
        if not memory.policy_state:
            return self._policy.initial()
        return decode_policy_state(memory.policy_state)

    def _blamed(self, error: Exception) -> Exception:
        """Name operator, slot and epoch in whatever the user's code raised."""
        where = (
            f"Operator {self._control.operator!r}, slot {self._slot}, epoch {self._control.epoch}"
        )
        if isinstance(error, MisplacedRowsError):
            return error
        if isinstance(error, OperatorError):
            return type(error)(f"{where}: {error.what}", why=error.why, do=error.do)
        if isinstance(error, TetherError):
            return OperatorError(f"{where}: {error.what}", why=error.why, do=error.do)
        return OperatorError(
            f"{where} raised {type(error).__name__}: {error}",
            why="The operator's own code failed on this epoch's rows.",
            do="The state was rolled back to the epoch before. Mend the operator and start the query "
            "again: it goes on with this epoch.",
        )
