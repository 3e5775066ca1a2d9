"""The epoch protocol of one slot, step by step. Knows nothing of Spark: rows in, rows out.

1. attach: find the resident state. Its version is the last epoch applied. One behind the epoch: go
   on. Half of this epoch, or all of it from an earlier turn: a retry; roll back. All of it in this
   turn: only its output is wanted again, from a private view. Missing, older, or of another lineage:
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
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import ArenaError
from tether.engine.event_time import Span, joined, span_of
from tether.engine.messages import GENESIS, RecoveryReport, SlotMemory, SlotStatus
from tether.engine.recovery.exact import rewound_to_start
from tether.engine.recovery.recover import recover
from tether.engine.recovery.replay import with_items
from tether.engine.slot.blame import blamed
from tether.engine.slot.misplaced import misplaced
from tether.engine.slot.phases import Phases
from tether.engine.slot.policy_codec import encode_policy_state, policy_state_of
from tether.engine.slot.residents import Resident, attached
from tether.engine.slot.second_look import EpochDone, done_before, encode_done, refuse_earlier_turns
from tether.engine.slot.windows import ended_windows
from tether.engine.writing.background import look
from tether.engine.writing.early import abandon_early, begin_early, end_early
from tether.engine.writing.items import pack_items, unpack_items
from tether.engine.writing.writer import SlotWriter, needs_compaction
from tether.output import Output
from tether.policies.events import BarrierAligned, EpochApplied, WindowEnd
from tether.policies.instructions import BackUpState, TakePart
from tether.state.executor import executor_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from tether.backup.frames import FrameRef
    from tether.engine.messages import PartDone, PartTaken, WrittenFrame
    from tether.engine.slot.program import Program
    from tether.operator import EndedWindow, Loss, Operator
    from tether.policies.instructions import Instruction
    from tether.policies.memory import SlotPolicyState
    from tether.state.identity import Owner
    from tether.state.slot import SlotState


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
        self._loss: Loss | None = None
        self._rows_in = self._rows_out = 0
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
            refuse_earlier_turns(resident, self._control)
            self._expect_another_task(resident)
            if (done := done_before(resident, self._control)) is not None:
                yield from self._look_again(resident, done, batches)
                return
            memory = self._ready(resident)
            if self._policy.recovery.logs_rows:
                memory, batches = self._log(memory, batches)
            try:
                yield from self._apply(resident.operator, memory, batches)
            except Exception:
                resident.state.rollback()
                raise
            self._program.reach("after-apply", self._slot)
            self._commit(resident, memory)

    def _apply(
        self, operator: Operator, memory: SlotMemory, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Call the operator's hooks for this epoch, in their order; give what it emits."""
        out = Output(self._program.output_schema, self._program.feedback_schema)
        for items in unpack_items(self._control.feedback):
            with self._blaming():
                operator.on_feedback(items, out)
        self._phases.end("process")
        for arrived in batches:
            self._rows_in += arrived.num_rows
            self._phases.end("wait")
            self._note_times(arrived)
            with self._blaming():
                operator.process(self._program.seen(arrived), out)
            self._phases.end("process")
            self._program.reach("halfway", self._slot)
            yield from out.drain()
        self._phases.end("wait")
        with self._blaming():
            operator.on_epoch_end(out)
            self._ended = self._windows(memory, self._rows_in)
            for window in self._ended:
                operator.on_window_end(window, out)
        self._feedback = pack_items(out.drain_feedback())
        self._phases.end("process")
        yield from out.drain()
        self._phases.end("wait")
        self._rows_out = out.rows

    def _look_again(
        self, resident: Resident, done: EpochDone, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Give the output of an epoch that is done once more, and the same report."""
        view = resident.private_view()
        view.state.rollback()
        memory = view.memory()
        view.state.begin(self._control.epoch)
        if done.loss is not None:
            with self._blaming():
                view.operator.on_recover(done.loss)
        yield from self._apply(view.operator, memory, batches)
        self.status = done.status

    # ---- 1. attach -----------------------------------------------------------------------------

    def _ready(self, resident: Resident) -> SlotMemory:
        """Bring the resident state to the end of the epoch before, and open this one."""
        control = self._control
        if resident.found and (resident.applying or resident.state.version == control.epoch):
            resident.state.rollback()
            self._rolled_back = True
            self._phases.end("rollback")
        if self._usable(resident, control.epoch - 1):
            return self._begin(resident, resident.memory())
        if control.epoch == control.first_epoch:
            return self._begin_from_nothing(resident)
        recovered = recover(self._program, resident, self._slot, self._attempt)
        self._recovery, self._loss = recovered.report, recovered.loss
        for phase, seconds in recovered.report.seconds.items():
            self._phases.add(f"recover.{phase}", seconds)
        memory = self._begin(resident, recovered.memory)
        if recovered.loss is not None:
            try:
                with self._blaming():
                    resident.operator.on_recover(recovered.loss)
            except Exception:
                resident.state.rollback()
                raise
        self._phases.restart()
        self._program.reach("during-recovery", self._slot)
        return memory

    def _begin(self, resident: Resident, memory: SlotMemory) -> SlotMemory:
        """Open the epoch; from here on the state says whose turn it is."""
        control = self._control
        resident.state.begin(control.epoch)
        memory = msgspec.structs.replace(memory, run=control.run, turn=control.turn)
        resident.remember(memory)
        return memory

    def _expect_another_task(self, resident: Resident) -> None:
        epoch = self._control.epoch
        at_work = resident.found and (resident.applying or resident.state.version == epoch)
        if at_work and self._task and resident.memory().task == self._task:
            raise misplaced(f"One task has two partitions for slot {self._slot}.")

    def _begin_from_nothing(self, resident: Resident) -> SlotMemory:
        """The query's first epoch: for the first time, or again after a rewind to the start."""
        epoch, memory = self._control.epoch, SlotMemory()
        if self._control.expects(self._slot) not in (None, GENESIS):
            # States of the first time must not be taken for those of the second.
            memory = SlotMemory(lineage=self._attempt)
            self._recovery = rewound_to_start(resident.reason)
        resident.create()
        resident.finish(epoch - 1, memory)
        memory = self._begin(resident, memory)
        self._phases.end("create")
        return memory

    def _usable(self, resident: Resident, version: int) -> bool:
        """Whether the resident state is the one that the query goes on with."""
        return resident.found and self._is_current(resident.state, resident.memory(), version)

    def _is_current(self, state: SlotState, memory: SlotMemory, version: int) -> bool:
        expected = self._control.expects(self._slot)
        return state.version == version and expected in (None, memory.lineage)

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

    def _commit(self, resident: Resident, memory: SlotMemory) -> None:
        state, epoch, rows_in = resident.state, self._control.epoch, self._rows_in
        changed_terms = bool(memory.policy_state) and memory.under != self._program.terms
        policy_state = self._policy_state(memory)
        theta = self._policy.threshold(policy_state, self._placement)
        frame, memory = end_early(resident, memory, self._control.run)
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
        if self._policy.recovery.exact:
            policy_state = with_items(memory, policy_state)
        if memory.part is not None and (done := look(resident.notes, memory.part)) is not None:
            self._part_done, memory = done, msgspec.structs.replace(memory, part=None)
        if self._control.snapshot is not None:
            policy_state, more = self._aligned(policy_state)
            memory = self._take_parts(resident, memory, more, wait=self._control.snapshot.waits)
        memory = msgspec.structs.replace(
            memory, policy_state=encode_policy_state(policy_state), under=self._program.terms
        )
        if changed_terms and self._policy.recovery.logs_rows:
            # Rows are logged from here on, so there must be a whole state of here to replay them onto.
            asked = BackUpState(target=0.0, cause="every-items")
            memory = abandon_early(resident, memory)
            frame, memory = self._writer.back_up(resident, memory, asked, whole=True)
            instructions = ()
        for instruction in instructions:
            if isinstance(instruction, BackUpState):
                frame, memory = self._back_up(resident, memory, instruction, frame)
        self._phases.end("backup")
        resident.remember(memory)
        status = self._status_of(resident, memory, frame, policy_state)
        control = self._control
        resident.arena.note = encode_done(
            EpochDone(status=status, run=control.run, loss=self._loss)
        )
        state.commit(epoch)
        self._program.reach("after-commit", self._slot)
        self._phases.end("commit")
        self.status = status

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
        barrier, epoch = self._control.snapshot, self._control.epoch
        event = BarrierAligned(epoch=epoch, number=barrier.number, complete=barrier.complete)
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

    def _status_of(
        self,
        resident: Resident,
        memory: SlotMemory,
        frame: WrittenFrame | None,
        policy_state: SlotPolicyState,
    ) -> SlotStatus:
        """The slot's account of the epoch.

        Raises:
            ArenaError: It would break the promise about the divergence.
        """
        state = resident.state
        theta = self._policy.threshold(policy_state, self._placement)
        # Parts count only once all slots have theirs, so a slot never knows what is durable.
        knows = self._policy.keeps_backups and not self._policy.recovery.rewinds
        divergence = state.divergence() if knows else math.inf
        if knows and divergence > theta:
            divergence = state.divergence(exact=True)
            if divergence > theta:
                # A broken promise must never be committed silently.
                raise ArenaError(
                    f"Slot {self._slot} of {self._control.operator} would end epoch "
                    f"{self._control.epoch} with divergence {divergence}, above its threshold {theta}.",
                    why="The backup did not bring the divergence down: a defect of a state primitive.",
                    do="Please report it with the query's story.",
                )
        return SlotStatus(
            operator=self._control.operator,
            slot=self._slot,
            epoch=self._control.epoch,
            turn=self._control.turn,
            attempt=self._attempt,
            executor=executor_name(self._owner),
            lineage=memory.lineage,
            failures=memory.failures,
            losses=memory.losses,
            policy_state=encode_policy_state(policy_state),
            under=self._program.terms,
            theta=theta,
            divergence=divergence,
            exact=knows and state.dirty_entries() == 0,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            resident_bytes=state.resident_bytes(),
            rolled_back=self._rolled_back,
            frame=frame,
            recovery=self._recovery,
            seconds=self._phases.seconds,
            feedback=self._feedback,
            feedback_epoch=self._control.feedback_epoch,
            event_times=self._event_times,
            logged=self._logged,
            part=self._part,
            part_done=self._part_done,
        )

    def _newest_known(self) -> float | None:
        known = self._control.clock.newest
        span = joined(self._event_times, None if known is None else (known, known))
        return span[1] if span else None

    def _policy_state(self, memory: SlotMemory) -> SlotPolicyState:
        return policy_state_of(self._program, memory.policy_state, memory.under, memory.losses)

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """An exception of the user's code says whose it is, and where it happened."""
        try:
            yield
        except Exception as error:
            operator, epoch = self._control.operator, self._control.epoch
            where = f"Operator {operator!r}, slot {self._slot}, epoch {epoch}"
            raise blamed(where, error) from error
