"""A slot whose resident state is gone: from the newest readable backup to a state that can go on.

AF-Stream 2019 §3.4.3. Found → read → applied → the failure counted, durably → go on. Frames of the
epoch that is about to run, or later ones, are never used: their rows come again.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.frames import FrameHeader
from tether.backup.recovery import recover_chain, require_whole
from tether.core.policy import RecordFailures, Recovered
from tether.operator import Loss
from tether.spark.control import RecoveryReport, SlotMemory
from tether.spark.exact_recovery import recover_exactly
from tether.spark.policy_codec import decode_policy_state, encode_policy_state

if TYPE_CHECKING:
    from tether.spark.program import Program
    from tether.spark.residents import Resident


class RecoveredSlot(NamedTuple):
    """A slot that has its state again."""

    memory: SlotMemory
    report: RecoveryReport
    loss: Loss | None
    """None where nothing was lost: the backup held the end of the epoch before."""


def recover(program: Program, resident: Resident, slot: int, attempt: str) -> RecoveredSlot:
    """Fill a new arena with the newest backup from before the epoch, and count the failure.

    Raises:
        BackupUnreadableError: What is needed cannot be read, and the policy is exact: it never guesses.
    """
    if not program.policy.keeps_backups:
        return _recover_nothing(program, resident, slot, attempt)
    if program.policy.recovery in ("replay", "rewind"):
        return RecoveredSlot(*recover_exactly(program, resident, slot, attempt), None)
    control = program.control
    began = time.perf_counter()
    store = program.open_store()
    history = program.history()
    facts = history.slot_facts(control.operator, slot, control.epoch)
    commits = history.chain(control.operator, slot, control.epoch)
    found = time.perf_counter()
    chain = recover_chain(store, history, control.operator, slot, control.epoch)
    if program.policy.recovery == "last-epoch":
        require_whole(chain, f"Slot {slot} of {control.operator!r} cannot be restored exactly.")
    read = time.perf_counter()
    state = resident.create()
    for frame in chain.frames:
        state.restore(frame.parts)
    applied = time.perf_counter()
    backup_epoch = max((frame.header.epoch for frame in chain.frames), default=-1)
    sequence = max((frame.header.sequence for frame in chain.frames), default=0)
    entries = sum(frame.header.entries for frame in chain.frames)
    lengths = [(commit.frame.length if commit.frame else 0, commit.kind) for commit in commits]
    full_bytes = sum(length for length, kind in lengths if kind == "full")
    log_bytes = sum(length for length, kind in lengths if kind != "full")

    policy_state = (
        decode_policy_state(facts.policy_state) if facts.policy_state else program.policy.initial()
    )
    theta_then = program.policy.threshold(policy_state, program.placement)
    # The backup may be the state at the end of the epoch before: then nothing was lost.
    # Where every change is backed up in its epoch, it is that also if it is of an earlier epoch.
    known = facts.exact_epoch is not None or not facts.lineage  # or nothing ever changed
    every_change = program.policy.recovery == "last-epoch" and known
    exact = (every_change or facts.exact_epoch == control.epoch - 1) and not chain.unreadable
    failures = facts.failures
    if not exact:
        policy_state, instructions = program.policy.step(
            policy_state,
            Recovered(epoch=control.epoch, newest_event_time=control.clock.newest),
            program.placement,
        )
        failures = facts.failures + 1
        assert any(isinstance(step, RecordFailures) for step in instructions)
    bound = 0.0 if exact else theta_then + chain.extra_bound
    memory = SlotMemory(
        lineage=attempt,
        failures=failures,
        policy_state=encode_policy_state(policy_state),
        sequence=sequence + 1,
        log_bytes=log_bytes,
        full_bytes=full_bytes,
        items=policy_state.items,
        extra=facts.extra + chain.extra_bound,
    )
    # The count must be durable before the slot goes on: a crash a moment later must still see it.
    store.append(
        FrameHeader(
            query=control.query,
            operator=control.operator,
            slot=slot,
            epoch=control.epoch,
            sequence=memory.sequence,
            failures=failures,
            kind="recovered",
            cause="recovery",
            attempt=attempt,
            lineage=attempt,
            divergence_before=0.0,
            divergence_after=0.0,
            carried=0.0,
            entries=0,
            written_at=time.time(),
        ),
        {},
    )
    resident.finish(control.epoch - 1, memory)
    report = RecoveryReport(
        reason=resident.reason,
        backup_epoch=backup_epoch,
        exact=exact,
        bound=bound,
        extra_bound=chain.extra_bound,
        frames=len(chain.frames),
        bytes=full_bytes + log_bytes,
        entries=entries,
        unreadable=[f"{ref.name}: {reason}" for ref, reason in chain.unreadable],
        seconds={
            "find": found - began,
            "read": read - found,
            "apply": applied - read,
            "record": time.perf_counter() - applied,
        },
    )
    loss = None
    if not exact:
        loss = Loss(
            slot=slot,
            epoch=control.epoch,
            backup_epoch=backup_epoch,
            failures=failures,
            bound=bound,
            theta=program.policy.threshold(policy_state, program.placement),
        )
    return RecoveredSlot(memory, report, loss)


def _recover_nothing(
    program: Program, resident: Resident, slot: int, attempt: str
) -> RecoveredSlot:
    """Without backups a lost slot starts again from nothing, and says so."""
    memory = SlotMemory(lineage=attempt, failures=1)
    resident.create()
    resident.finish(program.control.epoch - 1, memory)
    report = RecoveryReport(
        reason=resident.reason,
        backup_epoch=-1,
        exact=False,
        bound=math.inf,
    )
    loss = Loss(
        slot=slot,
        epoch=program.control.epoch,
        backup_epoch=-1,
        failures=1,
        bound=math.inf,
        theta=math.inf,
    )
    return RecoveredSlot(memory, report, loss)
