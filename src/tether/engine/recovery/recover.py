"""Recovers a slot whose resident state is lost, from what is durable.

AF-Stream 2019 §3.4.3, for every policy: find → read → apply → replay → price → continue. What differs
between policies is where the state comes from (:mod:`tether.engine.recovery.found`), and whether
logged rows are replayed onto it. Frames of the epoch that runs next, or of later ones, are never used,
because their rows are read again.

The cost of the loss is computed once, here. It is passed to the operator, reported to the driver, and
durable with the commit record of this epoch, before the host can commit it. If anything dies before
that, the epoch is run again from the same backup, and finds the same loss.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from tether.backup.parts import read_rows
from tether.core.ids import NEVER, Failures, FrameNumber, Lineage, Slot, epoch_before
from tether.engine.messages import RecoveryReport, SlotMemory
from tether.engine.recovery.found import find
from tether.engine.recovery.replay import replay
from tether.engine.slot.policy_codec import encode_policy_state
from tether.operator import Loss
from tether.policies.events import Recovered

if TYPE_CHECKING:
    from typing import Any

    from tether.engine.recovery.found import Found
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import Resident
    from tether.policies.instructions import Instruction


class RecoveredSlot(NamedTuple):
    """The outcome of a recovery."""

    memory: SlotMemory
    report: RecoveryReport
    loss: Loss | None
    """The loss as the operator is told; None where nothing was lost."""
    asked: tuple[Instruction, ...] = ()
    """The policy's instructions, to be carried out before the slot continues."""


def recover(program: Program, resident: Resident, slot: Slot, attempt: str) -> RecoveredSlot:
    """Restore the state from what is durable before the epoch, and determine the cost of the loss.

    Raises:
        LostStateError: Only a rewind of the whole query can restore it.
        BackupUnreadableError: Needed data cannot be read, and the policy is exact; or the bound would
            become infinite, and the user has not accepted that.
    """
    policy, control, began = program.policy, program.control, time.perf_counter()
    at_first = replace(program, control=structs.replace(control, epoch=control.first))
    found = find(at_first, slot, resident.reason)
    read = time.perf_counter()
    state = resident.create()
    for frame in found.frames:
        state.restore(frame.parts)
    # The driver learns the new lineage only at the end of the epoch. So if the process crashes in the
    # middle of a replay, the unfinished state is not accepted afterwards. Where several epochs come as
    # one, it then is the state before their number.
    version = found.version if control.after is None else epoch_before(control.epoch)
    resident.finish(version, _memory(program, attempt, found, found.policy_state))
    applied = time.perf_counter()
    policy_state, rows = found.policy_state, 0
    if policy.recovery.logs_rows:
        policy_state, rows = _replay(program, resident, slot, found)
    replayed = time.perf_counter()
    asked: tuple[Instruction, ...] = ()
    fails = found.price is not None or policy.recovery.counts_all
    if fails:
        event = Recovered(epoch=control.epoch, newest_event_time=control.clock.newest)
        policy_state, asked = policy.step(policy_state, event, program.placement)
    memory = _memory(program, attempt, found, policy_state, fails=fails)
    resident.remember(memory)
    report = RecoveryReport(
        reason=resident.reason or "its state is not the one that the query continues with",
        backup_epoch=found.backup_epoch,
        exact=found.price is None and not found.stale,
        bound=math.inf if found.stale else 0.0 if found.price is None else found.price.cost,
        extra_bound=found.extra_bound,
        loss=found.price,
        frames=len(found.frames),
        bytes=found.full_bytes + found.log_bytes,
        entries=sum(frame.header.entries for frame in found.frames),
        unreadable=list(found.unreadable),
        seconds={
            "find": found.looked_up - began,
            "read": read - found.looked_up,
            "apply": applied - read,
            "replay": replayed - applied,
            "finish": time.perf_counter() - replayed,
        },
        rows_replayed=rows,
    )
    theta = policy.threshold(policy_state, program.placement)
    return RecoveredSlot(memory, report, _told(report, memory, slot, theta), asked)


def rewound_to_start(reason: str) -> RecoveryReport:
    """The report of a slot that goes back to the initial state."""
    return RecoveryReport(
        reason=reason or "the query was taken back to its start",
        backup_epoch=NEVER,
        exact=True,
        bound=0.0,
    )


def _replay(program: Program, resident: Resident, slot: Slot, found: Found) -> tuple[Any, int]:
    control = program.control
    logged = read_rows(
        program.open_store(),
        program.history(),
        control.operator,
        slot,
        after_epoch=found.version,
        before_epoch=control.epoch,
    )
    by_epoch = {frame.header.epoch: frame for frame in logged}
    return replay(program, resident, slot, by_epoch, found.policy_state)


def _memory(
    program: Program, attempt: str, found: Found, policy_state: Any, *, fails: bool = True
) -> SlotMemory:
    lost = found.losses if found.price is None else found.losses | {found.price.lost}
    return SlotMemory(
        lineage=Lineage(attempt),
        failures=Failures(found.failures + fails),
        losses=Failures(len(lost)),
        policy_state=encode_policy_state(policy_state),
        # If the terms have changed, the slot begins with a whole backup, as after a restart.
        under=found.under or program.terms,
        sequence=FrameNumber(1 + max((frame.header.sequence for frame in found.frames), default=0)),
        log_bytes=found.log_bytes,
        full_bytes=found.full_bytes,
        items=policy_state.items,
    )


def _told(report: RecoveryReport, memory: SlotMemory, slot: Slot, theta: float) -> Loss | None:
    """The loss as the operator is told."""
    record = report.loss
    if record is None:
        return None
    return Loss(
        slot=slot,
        epoch=record.epoch,
        backup_epoch=report.backup_epoch,
        failures=memory.failures,
        bound=record.cost,
        theta=theta,
    )
