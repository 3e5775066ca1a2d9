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
from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import ArenaError
from tether.core.policy import (
    BackUpState,
    BarrierAligned,
    EpochApplied,
    SlotPolicyState,
    TakePart,
    WindowEnd,
)
from tether.output import Output
from tether.spark.background import look
from tether.spark.blame import blamed
from tether.spark.control import GENESIS, RecoveryReport, SlotMemory, SlotStatus
from tether.spark.early import abandon_early, begin_early, end_early
from tether.spark.ending import ended_windows
from tether.spark.event_time import Span, joined, span_of
from tether.spark.exact_recovery import rewound_to_start
from tether.spark.exactness import is_exact
from tether.spark.executor import executor_name
from tether.spark.feedback import pack_items, unpack_items
from tether.spark.misplaced import misplaced
from tether.spark.phases import Phases
from tether.spark.policy_codec import encode_policy_state, policy_state_of
from tether.spark.recovery import recover
from tether.spark.replay import with_items
from tether.spark.residents import Resident, attached
from tether.spark.writing import SlotWriter, needs_compaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tether.backup.frames import FrameRef
    from tether.core.policy import Instruction
    from tether.operator import EndedWindow
    from tether.spark.control import PartDone, PartTaken, WrittenFrame
    from tether.spark.program import Program
    from tether.state.identity import Owner


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
        self._placement, self._writer = program.placement, SlotWriter(program, slot, attempt)
        self._phases = Phases()
        self._rolled_back = False
        self._recovery: RecoveryReport | None = None
        self._event_times: Span | None = None
        self._ended: list[EndedWindow] = []
        self._feedback = b""
        self._logged: FrameRef | None = None
        self._part: PartTaken | None = None
        self._part_done: PartDone | None = None
        self.status: SlotStatus | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the epoch to the slot's state; give the operator's output; then set ``status``."""
        if self._program.reach("before-attach", self._slot):
            Resident(self._program, self._slot, self._owner).remove()
        with attached(self._program, self._slot, self._owner) as resident:
            self._phases.end("attach")
            memory = self._ready(resident)
            if self._policy.recovery == "replay":
                memory, batches = self._log(memory, batches)
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
                    self._note_times(arrived)
                    operator.process(self._program.seen(arrived), out)
                    self._phases.end("process")
                    self._program.reach("halfway", self._slot)
                    yield from out.drain()
                self._phases.end("wait")
                operator.on_epoch_end(out)
                self._ended = self._windows(memory, rows_in)
                for window in self._ended:
                    operator.on_window_end(window, out)
                self._feedback = pack_items(out.drain_feedback())
                self._phases.end("process")
            except Exception as error:
                resident.state.rollback()
                raise self._blamed(error) from error
            yield from out.drain()
            self._phases.end("wait")
            self._program.reach("after-apply", self._slot)
            self._commit(resident, memory, rows_in, out.rows)

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
            return self._begin_anew(resident)
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
        self._program.reach("during-recovery", self._slot)
        return recovered.memory

    def _begin_anew(self, resident: Resident) -> SlotMemory:
        """The query's first epoch: for the first time, or again after a rewind to the start."""
        epoch, memory = self._control.epoch, SlotMemory()
        if self._control.expects(self._slot) not in (None, GENESIS):
            # States of the first time must not be taken for those of the second.
            memory = SlotMemory(lineage=self._attempt)
            self._recovery = rewound_to_start(resident.reason)
        resident.create()
        resident.finish(epoch - 1, memory)
        resident.state.begin(epoch)
        self._phases.end("create")
        return memory

    def _usable(self, resident: Resident, version: int) -> bool:
        """Whether the resident state is the one that the query goes on with."""
        if not resident.found or resident.state.version != version:
            return False
        expected = self._control.expects(self._slot)
        return expected is None or resident.memory().lineage == expected

    def _note_times(self, batch: pa.RecordBatch) -> None:
        if (column := self._program.event_time) is not None:
            self._event_times = joined(self._event_times, span_of(batch[column]))

    def _windows(self, memory: SlotMemory, rows_in: int) -> list[EndedWindow]:
        clock, epoch = self._control.clock, self._control.epoch
        return ended_windows(self._program.window, epoch, memory.items, rows_in, clock)

    # ---- 2. rows -------------------------------------------------------------------------------

    def _log(
        self, memory: SlotMemory, batches: Iterable[pa.RecordBatch]
    ) -> tuple[SlotMemory, Iterable[pa.RecordBatch]]:
        """Make the epoch's rows, and all else that it works on, durable before it begins."""
        window, rows = self._program.window, list(batches)
        self._phases.end("wait")
        ended = self._windows(memory, 0) if window is not None and window.by == "seconds" else []
        known = self._policy_state(memory)
        self._logged, memory = self._writer.log_rows(memory, known, rows, ended)
        self._phases.end("log")
        return memory, rows

    # ---- 3. commit -----------------------------------------------------------------------------

    def _commit(self, resident: Resident, memory: SlotMemory, rows_in: int, rows_out: int) -> None:
        state, epoch = resident.state, self._control.epoch
        policy_state = self._policy_state(memory)
        theta = self._policy.threshold(policy_state, self._placement)
        frame, memory = end_early(resident, memory)
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
        if is_exact(self._policy):
            policy_state = with_items(memory, policy_state)
        if memory.part is not None and (done := look(resident.notes, memory.part)) is not None:
            self._part_done, memory = done, msgspec.structs.replace(memory, part=None)
        if self._control.snapshot is not None:
            policy_state, more = self._aligned(policy_state)
            memory = self._take_parts(resident, memory, more, wait=False)
        memory = msgspec.structs.replace(memory, policy_state=encode_policy_state(policy_state))
        for instruction in instructions:
            if isinstance(instruction, BackUpState):
                frame, memory = self._back_up(resident, memory, instruction, frame)
        self._phases.end("backup")
        resident.remember(memory)
        state.commit(epoch)
        self._program.reach("after-commit", self._slot)
        self._phases.end("commit")
        self._report(resident, memory, frame, policy_state, rows_in=rows_in, rows_out=rows_out)

    def _back_up(
        self,
        resident: Resident,
        memory: SlotMemory,
        instruction: BackUpState,
        settled: WrittenFrame | None = None,
    ) -> tuple[WrittenFrame | None, SlotMemory]:
        """Back up now, or begin to, as the policy asks; ``settled`` counts already."""
        if not instruction.wait and not needs_compaction(memory):
            return settled, begin_early(self._writer, resident, memory, instruction)
        memory = abandon_early(resident, memory)
        # An epoch names one frame of a slot: in place of one that was settled, only a whole image.
        frame, memory = self._writer.back_up(
            resident, memory, instruction, whole=settled is not None
        )
        return frame or settled, memory

    def _aligned(
        self, policy_state: SlotPolicyState
    ) -> tuple[SlotPolicyState, tuple[Instruction, ...]]:
        """The barrier of a snapshot ends the epoch: in epochs, all channels bring it at once."""
        assert self._control.snapshot is not None
        number, complete = self._control.snapshot
        event = BarrierAligned(epoch=self._control.epoch, number=number, complete=complete)
        return self._policy.step(policy_state, event, self._placement)

    def _take_parts(
        self, resident: Resident, memory: SlotMemory, steps: tuple[Instruction, ...], *, wait: bool
    ) -> SlotMemory:
        for step in steps:
            if isinstance(step, TakePart):
                taking = msgspec.structs.replace(step, wait=step.wait or wait)
                # What is known of an earlier part is not told any more: its snapshot is over.
                self._part, self._part_done, memory = self._writer.take_part(
                    resident, memory, taking
                )
        return memory

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
        # Parts count only once all slots have theirs, so a slot never knows what is durable.
        rewinds = self._policy.recovery == "rewind"
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
            exact=self._policy.keeps_backups and not rewinds and state.dirty_entries() == 0,
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
            logged=self._logged,
            part=self._part,
            part_done=self._part_done,
            extra=memory.extra,
        )

    def _newest_known(self) -> float | None:
        known = self._control.clock.newest
        span = joined(self._event_times, None if known is None else (known, known))
        return span[1] if span else None

    def _policy_state(self, memory: SlotMemory) -> SlotPolicyState:
        return policy_state_of(self._policy, memory.policy_state)

    def _blamed(self, error: Exception) -> Exception:
        operator, epoch = self._control.operator, self._control.epoch
        return blamed(f"Operator {operator!r}, slot {self._slot}, epoch {epoch}", error)
