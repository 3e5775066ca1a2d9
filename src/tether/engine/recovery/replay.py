"""Giving a restored slot its logged rows once more, epoch by epoch, to the state that it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.engine.messages import StreamClock
from tether.engine.slot.windows import ended_windows
from tether.engine.writing.writer import ENDED, FEEDBACK, ROWS
from tether.operator import EndedWindow
from tether.output import Output
from tether.policies.events import EpochApplied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.backup.frames import Frame
    from tether.engine.messages import SlotMemory
    from tether.engine.slot.program import Program
    from tether.engine.slot.residents import Resident
    from tether.policies.memory import SlotPolicyState


def replay(
    program: Program,
    resident: Resident,
    slot: int,
    logged: Mapping[int, Frame],
    policy_state: SlotPolicyState,
) -> tuple[SlotPolicyState, int]:
    """Run the epochs since the backup again, on the state and nothing else.

    What the operator emits and sends back is dropped: it was delivered when the epochs ran first. The
    same rows in the same order and batches give the same state, for an operator that computes from
    nothing but its rows and its state.

    Args:
        program: What all slots of the operator share.
        resident: The state, as of the backup.
        slot: Number of the slot.
        logged: What the slot was given in each epoch since; nothing where there is no entry.
        policy_state: The policy's memory as of the backup.

    Returns:
        The policy's memory as of the epoch before the control's, and the number of rows.
    """
    state, operator, rows = resident.state, resident.operator, 0
    for epoch in range(state.version + 1, program.control.epoch):
        parts = logged[epoch].parts if epoch in logged else {}
        state.begin(epoch)
        out = Output(program.output_schema, program.feedback_schema)
        for items in parts.get(FEEDBACK, ()):
            operator.on_feedback(items, out)
        rows_in = 0
        for batch in parts.get(ROWS, ()):
            rows_in += batch.num_rows
            operator.process(program.seen(batch), out)
            program.reach("during-replay", slot)
        operator.on_epoch_end(out)
        ended = ended_windows(program.window, epoch, policy_state.items, rows_in, StreamClock())
        for batch in parts.get(ENDED, ()):
            columns = batch.to_pydict()
            ended += [
                EndedWindow(start=start, end=end, by="seconds")
                for start, end in zip(columns["start"], columns["end"], strict=True)
            ]
        for window in ended:
            operator.on_window_end(window, out)
        applied = EpochApplied(epoch=epoch, divergence=0.0, items=rows_in)
        policy_state, _ = program.policy.step(policy_state, applied, program.placement)
        state.commit(epoch)
        rows += rows_in
    return policy_state, rows


def with_items(memory: SlotMemory, policy_state: SlotPolicyState) -> SlotPolicyState:
    """The policy's memory with the slot's own count of rows: windows by items need it after a loss."""
    return msgspec.structs.replace(policy_state, items=memory.items)
