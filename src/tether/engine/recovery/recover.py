"""A slot whose resident state is gone: from the newest readable backup to a state that can go on.

AF-Stream 2019 §3.4.3. Found → read → applied → priced → go on. Frames of the epoch that is about to
run, or later ones, are never used: their rows come again.

What the loss cost is a figure from here on. It is told to the operator, reported to the driver, and
durable with the commit record of this epoch, before Spark can commit it. Should anything die before
that, the epoch is run again from the same backup, and finds the same loss.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.recovery import recover_chain, require_whole
from tether.core.accounts import loss_at_most
from tether.core.losses import LossRecord
from tether.engine.messages import GENESIS, RecoveryReport, SlotMemory
from tether.engine.recovery.exact import recover_exactly
from tether.engine.slot.policy_codec import encode_policy_state, policy_state_of
from tether.operator import Loss
from tether.policies.events import Recovered

if TYPE_CHECKING:
    from tether.backup.history import SlotFacts
    from tether.engine.slot.program import Program
    from tether.engine.slot.residents import Resident


class RecoveredSlot(NamedTuple):
    """A slot that has its state again."""

    memory: SlotMemory
    report: RecoveryReport
    loss: Loss | None
    """None where nothing was lost: the backup held the end of the epoch before."""


def recover(program: Program, resident: Resident, slot: int, attempt: str) -> RecoveredSlot:
    """Fill a new arena with the newest backup from before the epoch, and price what was lost.

    Raises:
        BackupUnreadableError: What is needed cannot be read, and the policy is exact: it never guesses.
            Or it has a bound, which would be infinite, and nobody has accepted that.
    """
    if not program.policy.keeps_backups:
        return _recover_nothing(program, resident, slot, attempt)
    if program.policy.recovery.logs_rows or program.policy.recovery.rewinds:
        return RecoveredSlot(*recover_exactly(program, resident, slot, attempt), None)
    control = program.control
    began = time.perf_counter()
    store = program.open_store()
    history = program.history()
    facts = history.slot_facts(control.operator, slot, control.epoch)
    commits = history.chain(control.operator, slot, control.epoch)
    found = time.perf_counter()
    chain = recover_chain(store, history, control.operator, slot, control.epoch)
    if program.policy.recovery.exact:
        require_whole(chain, f"Slot {slot} of {control.operator!r} cannot be restored exactly.")
    elif math.isinf(chain.extra_bound) and not control.accept_damage:
        require_whole(
            chain,
            f"Slot {slot} of {control.operator!r} cannot be restored with a bound.",
            or_else="Or start with accept_damage=True: the bound is then infinite.",
        )
    read = time.perf_counter()
    state = resident.create()
    for frame in chain.frames:
        state.restore(frame.parts)
    applied = time.perf_counter()
    backup_epoch = max((frame.header.epoch for frame in chain.frames), default=-1)
    lengths = [(commit.frame.length if commit.frame else 0, commit.kind) for commit in commits]
    full_bytes = sum(length for length, kind in lengths if kind == "full")
    log_bytes = sum(length for length, kind in lengths if kind != "full")

    account = {loss.lost for loss in history.losses(control.operator, slot)}
    policy_state = policy_state_of(program, facts.policy_state, facts.under, len(account))
    failures, record = facts.failures, None
    if chain.unreadable or not _is_whole(program, facts):
        record = LossRecord(
            lost=facts.lineage or GENESIS,
            epoch=control.epoch,
            at_most=_at_risk(program, slot, facts),
            theta=facts.theta,
            failures=policy_state.failures,
            under=facts.under,
            extra=chain.extra_bound,
        )
        event = Recovered(epoch=control.epoch, newest_event_time=control.clock.newest)
        policy_state, _ = program.policy.step(policy_state, event, program.placement)
        failures, account = failures + 1, account | {record.lost}
    memory = SlotMemory(
        lineage=attempt,
        failures=failures,
        losses=len(account),
        policy_state=encode_policy_state(policy_state),
        under=program.terms,
        sequence=1 + max((frame.header.sequence for frame in chain.frames), default=0),
        log_bytes=log_bytes,
        full_bytes=full_bytes,
        items=policy_state.items,
    )
    resident.finish(control.epoch - 1, memory)
    report = RecoveryReport(
        reason=resident.reason,
        backup_epoch=backup_epoch,
        exact=record is None,
        bound=0.0 if record is None else record.cost,
        extra_bound=chain.extra_bound,
        loss=record,
        frames=len(chain.frames),
        bytes=full_bytes + log_bytes,
        entries=sum(frame.header.entries for frame in chain.frames),
        unreadable=[f"{ref.name}: {reason}" for ref, reason in chain.unreadable],
        seconds={
            "find": found - began,
            "read": read - found,
            "apply": applied - read,
            "finish": time.perf_counter() - applied,
        },
    )
    theta = program.policy.threshold(policy_state, program.placement)
    return _told(memory, report, slot, theta)


def _is_whole(program: Program, facts: SlotFacts) -> bool:
    """Whether the committed frames are the state at the end of the epoch before: nothing was lost."""
    if facts.exact_epoch == program.control.epoch - 1:
        return True
    # Where every change is backed up in its epoch, a backup of an earlier epoch is that too: nothing
    # has changed since. It says nothing of epochs that were run under other terms.
    every_change = program.policy.recovery.every_change and facts.under == program.terms
    return every_change and facts.exact_epoch is not None


def _at_risk(program: Program, slot: int, facts: SlotFacts) -> float:
    """The most that the lost state differed from its backup: what was durable says so.

    Not what the policy of today would allow: the epoch before may have been run under another.
    """
    control = program.control
    at_the_end = facts.divergence if facts.epoch == control.epoch - 1 else None
    recorded = loss_at_most(facts.theta, at_the_end)
    return loss_at_most(recorded, control.divergences.get(slot))


def _recover_nothing(
    program: Program, resident: Resident, slot: int, attempt: str
) -> RecoveredSlot:
    """Without backups a lost slot starts again from nothing, and says so."""
    control = program.control
    memory = SlotMemory(lineage=attempt, failures=1, losses=1)
    resident.create()
    resident.finish(control.epoch - 1, memory)
    record = LossRecord(
        lost=control.expects(slot) or GENESIS,
        epoch=control.epoch,
        at_most=math.inf,
        theta=math.inf,
        failures=0,
        under=program.terms,
    )
    report = RecoveryReport(
        reason=resident.reason, backup_epoch=-1, exact=False, bound=math.inf, loss=record
    )
    return _told(memory, report, slot, math.inf)


def _told(memory: SlotMemory, report: RecoveryReport, slot: int, theta: float) -> RecoveredSlot:
    """With what the operator is told of it."""
    record = report.loss
    if record is None:
        return RecoveredSlot(memory, report, None)
    loss = Loss(
        slot=slot,
        epoch=record.epoch,
        backup_epoch=report.backup_epoch,
        failures=memory.failures,
        bound=record.cost,
        theta=theta,
    )
    return RecoveredSlot(memory, report, loss)
