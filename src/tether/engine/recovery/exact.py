"""A slot whose resident state is gone, under a policy by which that costs nothing.

``replay``: the slot's own backup, then the rows that were logged since. ``rewind``: the slot's part of
the newest complete snapshot, if that is of the epoch before; if it is older the slot alone cannot
help itself, and says so: the driver then takes the whole query back.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.parts import read_part, read_rows
from tether.backup.recovery import recover_chain, require_whole
from tether.core.errors import BackupUnreadableError
from tether.engine.messages import RecoveryReport, SlotMemory
from tether.engine.recovery.lost import LostStateError
from tether.engine.recovery.replay import replay
from tether.engine.slot.policy_codec import encode_policy_state, policy_state_of
from tether.policies.events import Recovered

if TYPE_CHECKING:
    from tether.backup.frames import Frame
    from tether.engine.slot.program import Program
    from tether.engine.slot.residents import Resident
    from tether.policies.memory import SlotPolicyState


class _Backup(NamedTuple):
    """A state to go on from, as read."""

    epoch: int
    frames: list[Frame]
    policy_state: SlotPolicyState
    failures: int
    losses: int
    found: float
    """When it was found, as the clock of ``perf_counter`` shows it."""


def recover_exactly(
    program: Program, resident: Resident, slot: int, attempt: str
) -> tuple[SlotMemory, RecoveryReport]:
    """Fill a new arena with just the state that was lost.

    Raises:
        LostStateError: Only a rewind of the whole query can restore it.
        BackupUnreadableError: What is needed cannot be read: an exact policy never guesses.
    """
    policy, control, began = program.policy, program.control, time.perf_counter()
    rewinds = policy.recovery.rewinds
    backup = _part(program, resident, slot) if rewinds else _own_backup(program, slot)
    read = time.perf_counter()
    state = resident.create()
    for frame in backup.frames:
        state.restore(frame.parts)
    policy_state = backup.policy_state
    memory = _memory(program, attempt, backup, policy_state)
    # The lineage is new, and the driver learns it only at the end: whoever finds this arena after a
    # crash in the middle of the replay does not use it.
    before = control.epoch - 1  # of a stale part too: what it lacks, the twin has
    resident.finish(before if rewinds else backup.epoch, memory)
    applied = time.perf_counter()
    rows = 0
    if not rewinds:
        store = program.open_store()
        logged = read_rows(
            store,
            program.history(),
            control.operator,
            slot,
            after_epoch=backup.epoch,
            before_epoch=control.epoch,
        )
        by_epoch = {frame.header.epoch: frame for frame in logged}
        policy_state, rows = replay(program, resident, slot, by_epoch, policy_state)
    policy_state, _ = policy.step(policy_state, Recovered(epoch=control.epoch), program.placement)
    memory = _memory(program, attempt, backup, policy_state)
    resident.remember(memory)
    report = RecoveryReport(
        reason=resident.reason or "its state is not the one that the query goes on with",
        backup_epoch=backup.epoch,
        exact=not rewinds or backup.epoch == before,
        bound=math.inf if rewinds and backup.epoch != before else 0.0,
        extra_bound=0.0,
        frames=len(backup.frames),
        bytes=sum(_bytes(frame) for frame in backup.frames),
        entries=sum(frame.header.entries for frame in backup.frames),
        unreadable=[],
        seconds={
            "find": backup.found - began,
            "read": read - backup.found,
            "apply": applied - read,
            "replay": time.perf_counter() - applied,
        },
        rows_replayed=rows,
    )
    return memory, report


def rewound_to_start(reason: str) -> RecoveryReport:
    """The report of a slot that goes back to the state that operators start with."""
    return RecoveryReport(
        reason=reason or "the query was taken back to its start",
        backup_epoch=-1,
        exact=True,
        bound=0.0,
    )


def _own_backup(program: Program, slot: int) -> _Backup:
    control, store = program.control, program.open_store()
    history = program.history()
    commits = history.chain(control.operator, slot, control.epoch)
    found = time.perf_counter()
    chain = recover_chain(store, history, control.operator, slot, control.epoch)
    require_whole(chain, f"Slot {slot} of {control.operator!r} cannot be restored exactly.")
    facts = history.slot_facts(control.operator, slot, control.epoch)
    losses = len(history.losses(control.operator, slot))
    base = commits[-1] if commits else None
    if facts.exact_epoch == control.epoch - 1:
        known = policy_state_of(program, facts.policy_state, facts.under, losses)
        return _Backup(control.epoch - 1, chain.frames, known, facts.failures, losses, found)
    # Rows were logged under these terms only. So they must reach back to a whole state, and that is
    # one which was written under them, or the state that operators start with.
    logged_since = facts.under == program.terms and (base is None or base.under == program.terms)
    if not logged_since or (base is not None and not base.exact):
        raise BackupUnreadableError(
            f"Slot {slot} of {control.operator!r} cannot be restored exactly.",
            why="Epochs since its newest whole backup were run under a policy that is not exact, or "
            "that kept no rows.",
            do="Start anew with an empty backup directory and Spark checkpoint, or go back to the "
            "policy that the backup was written with.",
        )
    if base is None:
        first = policy_state_of(program, b"", "", losses)
        return _Backup(control.first_epoch - 1, [], first, facts.failures, losses, found)
    known = policy_state_of(program, base.policy_state, base.under, losses)
    return _Backup(base.epoch, chain.frames, known, facts.failures, losses, found)


def _part(program: Program, resident: Resident, slot: int) -> _Backup:
    control, store = program.control, program.open_store()
    history = program.history()
    snapshot = history.complete_snapshot(control.epoch)
    found = time.perf_counter()
    stale = slot in control.stale
    if not stale and (snapshot is None or snapshot.epoch != control.epoch - 1):
        raise LostStateError(
            f"Slot {slot} of {control.operator!r} has lost its state before epoch {control.epoch}.",
            why=resident.reason or "The resident state is not the one that the query goes on with.",
            do="Nothing: the query goes back to its newest complete snapshot.",
        )
    if snapshot is None:  # stale, and there is nothing older than the start
        first = policy_state_of(program, b"", "", 0)
        return _Backup(control.first_epoch - 1, [], first, 0, 0, found)
    part = read_part(store, history, control.operator, slot, snapshot)
    facts = history.slot_facts(control.operator, slot, control.epoch)
    losses = len(history.losses(control.operator, slot))
    known = policy_state_of(program, facts.policy_state, facts.under, losses)
    return _Backup(snapshot.epoch, part.frames, known, facts.failures, losses, found)


def _memory(
    program: Program, attempt: str, backup: _Backup, policy_state: SlotPolicyState
) -> SlotMemory:
    full = sum(_bytes(frame) for frame in backup.frames if frame.header.kind == "full")
    return SlotMemory(
        lineage=attempt,
        failures=backup.failures + 1,
        losses=backup.losses,
        policy_state=encode_policy_state(policy_state),
        under=program.terms,
        sequence=1 + max((frame.header.sequence for frame in backup.frames), default=0),
        log_bytes=sum(_bytes(frame) for frame in backup.frames) - full,
        full_bytes=full,
        items=policy_state.items,
    )


def _bytes(frame: Frame) -> int:
    return sum(batch.nbytes for batches in frame.parts.values() for batch in batches)
