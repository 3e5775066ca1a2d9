"""The epoch protocol of one slot, step by step. Knows nothing of Spark: rows in, rows out.

1. attach: find the resident state. Its version is the last epoch applied. If it is the previous epoch:
   continue. If this epoch is applied in part, or in whole by an earlier turn: a retry; roll back. If it
   is applied in whole by this turn: only the output is needed again; compute it on a private view. If
   the state is missing, older, or of another lineage: a loss; recover.
2. process the rows. The old value of every entry is in the journal before the entry changes.
3. commit: the policy says what must be durable before the task may succeed. Then the version
   becomes this epoch.
4. report to the driver, which commits the epoch once all slots have reported.

A process may die between any two instructions: the next attach finds either the end of an epoch, or an
epoch that can be rolled back.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import ArenaError
from tether.core.ids import GENESIS, Epoch, Lineage, Seat, Slot, epoch_before
from tether.engine.event_time import Span, joined, span_of
from tether.engine.messages import RecoveryReport, SlotMemory, SlotStatus
from tether.engine.recovery.recover import recover, rewound_to_start
from tether.engine.slot.blame import blamed
from tether.engine.slot.hooks import Applied, EpochInput, Watch, call_hooks
from tether.engine.slot.interpreter import Arrived, Draft, Interpreter
from tether.engine.slot.misplaced import misplaced
from tether.engine.slot.phases import Phases
from tether.engine.slot.policy_codec import encode_policy_state, policy_state_of
from tether.engine.slot.second_look import EpochDone, done_before, encode_done, refuse_earlier_turns
from tether.engine.slot.windows import ended_windows
from tether.engine.writing.early import end_early
from tether.engine.writing.items import pack_items, unpack_items
from tether.engine.writing.writer import SlotWriter
from tether.output import Output
from tether.policies.events import BarrierAligned, EpochApplied, RowsReady, WindowEnd
from tether.policies.instructions import BackUpState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    import pyarrow as pa

    from tether.engine.messages import SnapshotBarrier
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import Resident, SlotHost
    from tether.operator import EndedWindow, Loss, Operator
    from tether.state.slot import SlotState


class SlotEpoch(Watch):
    """One slot's work in one epoch.

    Args:
        program: What all slots of the operator share: control, policy, store, schemas.
        slot: Number of the slot.
        attempt: Unique id of this task attempt.
        host: Where the task runs, and the slot's resident state is.
        task: The host's id of the task, where there is one.
        seat: Where the slot runs; by default in the seat of its number.
    """

    def __init__(
        self,
        program: Program,
        slot: Slot,
        attempt: str,
        host: SlotHost,
        task: str = "",
        *,
        seat: Seat | None = None,
    ) -> None:
        self._seat = Seat(slot) if seat is None else seat
        self._resident_id = program.control.resident_id(slot, self._seat)
        self._program, self._slot, self._attempt, self._host = program, slot, attempt, host
        self._control, self._policy, self._task = program.control, program.policy, task
        self._placement, self._writer = program.placement, SlotWriter(program, slot, attempt)
        self._phases = Phases()
        self._rolled_back = False
        self._recovery: RecoveryReport | None = None
        self._loss: Loss | None = None
        self._applied = Applied(0, ())
        self._rows_out = 0
        self._event_times: Span | None = None
        self._feedback = b""
        self.status: SlotStatus | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the epoch to the slot's state; yield the operator's output; then set ``status``."""
        if self._program.reach("before-attach", self._slot):
            self._host.forget(self._program, self._resident_id)
        with self._host.attached(self._program, self._resident_id) as resident:
            self._phases.end("attach")
            refuse_earlier_turns(resident, self._control)
            self._expect_another_task(resident)
            if (done := done_before(resident, self._control)) is not None:
                yield from self._look_again(resident, done, batches)
                return
            draft = self._ready(resident)
            policy = Interpreter(self._writer, resident)
            if self._policy.recovery.logs_rows:
                batches = self._log(policy, draft, batches)
            try:
                yield from self._apply(resident.operator, draft.memory, batches)
            except Exception:
                resident.state.rollback()
                raise
            self._program.reach("after-apply", self._slot)
            self._commit(policy, resident, draft)

    def _apply(
        self, operator: Operator, memory: SlotMemory, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Call the operator's hooks for this epoch; yield what it emits."""
        out = Output(self._program.output_schema, self._program.feedback_schema)
        given = EpochInput(
            rows=batches,
            feedback=unpack_items(self._control.feedback),
            ended=lambda rows: self._windows(memory, rows),
        )
        self._applied = yield from call_hooks(operator, given, out, self)
        self._feedback = pack_items(out.drain_feedback())
        self._rows_out = out.rows

    def _look_again(
        self, resident: Resident, done: EpochDone, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the output of a finished epoch once more, and set the same report."""
        view = resident.private_view()
        view.state.rollback()
        memory = view.memory()
        view.state.begin(self._control.epoch)
        if done.loss is not None:
            with self.blaming():
                view.operator.on_recover(done.loss)
        yield from self._apply(view.operator, memory, batches)
        self.status = done.status

    # ---- while the hooks are called ------------------------------------------------------------

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Add operator, slot and epoch to exceptions of the user's code."""
        try:
            yield
        except Exception as error:
            operator, epoch = self._control.operator, self._control.epoch
            where = f"Operator {operator!r}, slot {self._slot}, epoch {epoch}"
            raise blamed(where, error) from error

    def arrived(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Note the rows' event times; return the batch as the operator gets it."""
        if (column := self._program.event_time) is not None:
            self._event_times = joined(self._event_times, span_of(batch[column]))
        return self._program.seen(batch)

    def spent(self, on: Literal["process", "wait"]) -> None:
        """Charge the time since the last mark to the operator's code or to waiting."""
        self._phases.end(on)

    def processed(self) -> None:
        """Let a planned fault strike between two batches."""
        self._program.reach("halfway", self._slot)

    # ---- 1. attach -----------------------------------------------------------------------------

    def _ready(self, resident: Resident) -> Draft:
        """Bring the resident state to the end of the previous epoch, and begin this one."""
        control = self._control
        if resident.found and (resident.applying or resident.state.version == control.epoch):
            resident.state.rollback()
            self._rolled_back = True
            self._phases.end("rollback")
        # Where several epochs come as one, a state that was restored for them has the number before
        # theirs, and one that is continued still has that of the epoch before the first.
        if any(self._usable(resident, epoch_before(at)) for at in {control.epoch, control.first}):
            return self._begin(resident, resident.memory())
        if control.first == control.first_epoch:
            return self._begin_from_nothing(resident)
        recovered = recover(self._program, resident, self._slot, self._attempt)
        self._recovery, self._loss = recovered.report, recovered.loss
        for phase, seconds in recovered.report.seconds.items():
            self._phases.add(f"recover.{phase}", seconds)
        draft = self._begin(resident, recovered.memory)
        Interpreter(self._writer, resident).carry_out(draft, recovered.asked)
        if recovered.loss is not None:
            try:
                with self.blaming():
                    resident.operator.on_recover(recovered.loss)
            except Exception:
                resident.state.rollback()
                raise
        self._phases.restart()
        self._program.reach("during-recovery", self._slot)
        return draft

    def _begin(self, resident: Resident, memory: SlotMemory) -> Draft:
        """Begin the epoch; from here on the state contains the run and turn of this task."""
        control = self._control
        resident.state.begin(control.epoch)
        memory = msgspec.structs.replace(memory, run=control.run, turn=control.turn)
        resident.remember(memory)
        return Draft(memory, self._policy_state(memory))

    def _expect_another_task(self, resident: Resident) -> None:
        epoch = self._control.epoch
        at_work = resident.found and (resident.applying or resident.state.version == epoch)
        if at_work and self._task and resident.memory().task == self._task:
            raise misplaced(f"One task has two partitions for slot {self._slot}.")

    def _begin_from_nothing(self, resident: Resident) -> Draft:
        """The query's first epoch: for the first time, or again after a rewind to the start."""
        epoch, memory = self._control.epoch, SlotMemory()
        if self._control.expects(self._slot, self._seat) not in (None, GENESIS):
            # A new lineage, so that states from before the rewind are not accepted.
            memory = SlotMemory(lineage=Lineage(self._attempt))
            self._recovery = rewound_to_start(resident.reason)
        resident.create()
        resident.finish(epoch_before(epoch), memory)
        draft = self._begin(resident, memory)
        self._phases.end("create")
        return draft

    def _usable(self, resident: Resident, version: Epoch) -> bool:
        """Whether the resident state is the one that the query continues with."""
        return resident.found and self._is_current(resident.state, resident.memory(), version)

    def _is_current(self, state: SlotState, memory: SlotMemory, version: Epoch) -> bool:
        expected = self._control.expects(self._slot, self._seat)
        return state.version == version and expected in (None, memory.lineage)

    def _windows(self, memory: SlotMemory, rows_in: int) -> list[EndedWindow]:
        clock, epoch = self._control.clock, self._control.epoch
        return ended_windows(self._program.window, epoch, memory.items, rows_in, clock)

    # ---- 2. rows -------------------------------------------------------------------------------

    def _log(
        self, policy: Interpreter, draft: Draft, batches: Iterable[pa.RecordBatch]
    ) -> Iterable[pa.RecordBatch]:
        """Make the epoch's rows and its other input durable before it begins."""
        window, rows = self._program.window, list(batches)
        self._phases.end("wait")
        by_time = window is not None and window.by == "seconds"
        draft.arrived = Arrived(
            rows=rows,
            feedback=list(unpack_items(self._control.feedback)),
            ended=self._windows(draft.memory, 0) if by_time else [],
        )
        policy.tell(draft, RowsReady(epoch=self._control.epoch, items=draft.arrived.items))
        self._phases.end("log")
        return rows

    # ---- 3. commit -----------------------------------------------------------------------------

    def _commit(self, policy: Interpreter, resident: Resident, draft: Draft) -> None:
        """Make durable what the policy asks for, then mark the epoch as applied."""
        state, control, rows_in = resident.state, self._control, self._applied.rows
        before = draft.memory
        changed_terms = bool(before.policy_state) and before.under != self._program.terms
        draft.frame, draft.memory = end_early(resident, draft.memory, control.run)
        draft.memory = msgspec.structs.replace(
            draft.memory, items=before.items + rows_in, task=self._task
        )
        event = self._epoch_applied(state, draft)
        if changed_terms and self._policy.keeps_backups and not self._policy.recovery.rewinds:
            # An earlier policy may have written state into a snapshot that was never completed, and
            # marked it as durable. And rows that are logged from here on need a whole backup to be
            # replayed on.
            draft.policy_state, _ = self._policy.step(draft.policy_state, event, self._placement)
            policy.back_up_whole(draft, BackUpState(target=0.0, cause="flush"))
        else:
            policy.tell(draft, event)
        for window in self._applied.ended:
            # This epoch's backup stays as it is: a θ that a window restores is used by later epochs.
            policy.tell(draft, WindowEnd(epoch=control.epoch, end=window.end))
        if (work := draft.memory.part) is not None and (done := resident.look(work)) is not None:
            draft.part_done = done
            draft.memory = msgspec.structs.replace(draft.memory, part=None)
        if control.snapshot is not None:
            policy.tell(draft, self._aligned(control.snapshot))
        draft.memory = msgspec.structs.replace(
            draft.memory,
            policy_state=encode_policy_state(draft.policy_state),
            under=self._program.terms,
        )
        self._phases.end("backup")
        resident.remember(draft.memory)
        status = self._status_of(resident, draft)
        resident.leave_note(encode_done(EpochDone(status=status, run=control.run, loss=self._loss)))
        state.commit(control.epoch)
        self._program.reach("after-commit", self._slot)
        self._phases.end("commit")
        self.status = status

    def _epoch_applied(self, state: SlotState, draft: Draft) -> EpochApplied:
        theta = self._policy.threshold(draft.policy_state, self._placement)
        divergence = state.divergence()
        if divergence > theta:
            divergence = state.divergence(exact=True)
        known = self._control.clock.newest
        newest = joined(self._event_times, None if known is None else (known, known))
        return EpochApplied(
            epoch=self._control.epoch,
            divergence=divergence,
            items=self._applied.rows,
            newest_event_time=newest[1] if newest else None,
            watermark=self._control.clock.watermark,
        )

    def _aligned(self, barrier: SnapshotBarrier) -> BarrierAligned:
        """The event of the barrier that ends the epoch; in epochs all channels bring it at once."""
        return BarrierAligned(
            epoch=self._control.epoch, number=barrier.number, complete=barrier.complete
        )

    def _status_of(self, resident: Resident, draft: Draft) -> SlotStatus:
        """The slot's report of the epoch.

        Raises:
            ArenaError: The divergence would be above its threshold.
        """
        state, memory = resident.state, draft.memory
        theta = self._policy.threshold(draft.policy_state, self._placement)
        # A part counts only when the parts of all slots are durable, which a slot does not know.
        knows = self._policy.keeps_backups and not self._policy.recovery.rewinds
        knows = knows and self._control.ahead is None  # a run ahead is never durable
        divergence = state.divergence() if knows else math.inf
        if knows and divergence > theta:
            divergence = state.divergence(exact=True)
            if divergence > theta:
                # Never commit an epoch that breaks the bound.
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
            executor=self._host.executor,
            lineage=memory.lineage,
            failures=memory.failures,
            losses=memory.losses,
            policy_state=encode_policy_state(draft.policy_state),
            under=self._program.terms,
            theta=theta,
            divergence=divergence,
            exact=knows and state.dirty_entries() == 0,
            rows_in=self._applied.rows,
            rows_out=self._rows_out,
            resident_bytes=state.resident_bytes(),
            rolled_back=self._rolled_back,
            frame=draft.frame,
            recovery=self._recovery,
            seconds=self._phases.seconds,
            changed=state.changed_entries(),
            feedback=self._feedback,
            feedback_epoch=self._control.feedback_epoch,
            event_times=self._event_times,
            logged=draft.logged,
            part=draft.part,
            part_done=draft.part_done,
            must_record=draft.must_record,
        )

    def _policy_state(self, memory: SlotMemory) -> Any:
        return policy_state_of(
            self._program, memory.policy_state, memory.under, memory.losses, memory.items
        )
