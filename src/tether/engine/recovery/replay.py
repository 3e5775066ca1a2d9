"""Replays logged rows into a restored slot, epoch by epoch, until it has the state that it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, Slot
from tether.engine.messages import StreamClock
from tether.engine.slot.hooks import EpochInput, Watch, call_hooks, to_the_end
from tether.engine.slot.windows import ended_windows
from tether.engine.writing.writer import ENDED, FEEDBACK, ROWS
from tether.operator import EndedWindow
from tether.output import Output
from tether.policies.events import EpochApplied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.frames import Frame
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import Resident


class _Replaying(Watch):
    def __init__(self, program: Program, slot: Slot) -> None:
        self._program, self._slot = program, slot

    def arrived(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._program.seen(batch)

    def processed(self) -> None:
        self._program.reach("during-replay", self._slot)


def replay(
    program: Program,
    resident: Resident,
    slot: Slot,
    logged: Mapping[Epoch, Frame],
    policy_state: Any,
) -> tuple[Any, int]:
    """Run the epochs since the backup again; only the state is changed.

    The operator's output and feedback are dropped: they were delivered when the epochs ran first. The
    same rows in the same order and batches give the same state, for an operator that computes from
    nothing but its rows and its state.

    Args:
        program: What all slots of the operator share.
        resident: The state, as of the backup.
        slot: Number of the slot.
        logged: The input of the slot in each epoch since; an epoch without an entry had none.
        policy_state: The policy's state as of the backup.

    Returns:
        The policy's state as of the epoch before the control's, and the number of rows.
    """
    state, watch, rows = resident.state, _Replaying(program, slot), 0
    for epoch in map(Epoch, range(state.version + 1, program.control.epoch)):
        parts = logged[epoch].parts if epoch in logged else {}
        state.begin(epoch)

        def ended(
            rows_in: int, epoch: Epoch = epoch, items: int = policy_state.items, parts: Any = parts
        ) -> Sequence[EndedWindow]:
            by_number = ended_windows(program.window, epoch, items, rows_in, StreamClock())
            return [*by_number, *_logged_windows(parts)]

        given = EpochInput(parts.get(ROWS, ()), parts.get(FEEDBACK, ()), ended)
        out = Output(program.output_schema, program.feedback_schema)
        applied = to_the_end(call_hooks(resident.operator, given, out, watch))
        # The policy's instructions were carried out when the epochs ran first.
        event = EpochApplied(epoch=epoch, divergence=0.0, items=applied.rows)
        policy_state, _ = program.policy.step(policy_state, event, program.placement)
        state.commit(epoch)
        rows += applied.rows
    return policy_state, rows


def _logged_windows(parts: Mapping[str, Sequence[pa.RecordBatch]]) -> Iterator[EndedWindow]:
    """Windows that event time had ended."""
    for batch in parts.get(ENDED, ()):
        columns = batch.to_pydict()
        for start, end in zip(columns["start"], columns["end"], strict=True):
            yield EndedWindow(start=start, end=end, by="seconds")
