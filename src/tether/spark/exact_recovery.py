"""A slot whose resident state is gone, under a policy by which that costs nothing.

``replay``: the slot's own backup, then the rows that were logged since. ``rewind``: the slot's part of
the newest complete snapshot, if that is of the epoch before; if it is older the slot alone cannot
help itself, and says so: the driver then takes the whole query back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.parts import read_part, read_rows
from tether.backup.recovery import recover_chain, require_whole
from tether.core.errors import BackupUnreadableError
from tether.core.policy import Recovered, SlotPolicyState
from tether.spark.control import RecoveryReport, SlotMemory
from tether.spark.lost import LostStateError
from tether.spark.policy_codec import encode_policy_state, policy_state_of
from tether.spark.replay import replay

if TYPE_CHECKING:
    from tether.backup.frames import Frame
    from tether.spark.program import Program
    from tether.spark.residents import Resident


class _Backup(NamedTuple):
    """A state to go on from, as read."""

    epoch: int
    frames: list[Frame]
    policy_state: bytes
    failures: int
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
    rewinds = policy.recovery == "rewind"
    backup = _part(program, resident, slot) if rewinds else _own_backup(program, slot)
    read = time.perf_counter()
    state = resident.create()
    for frame in backup.frames:
        state.restore(frame.parts)
    policy_state = policy_state_of(policy, backup.policy_state)
    memory = _memory(attempt, backup, policy_state)
    # The lineage is new, and the driver learns it only at the end: whoever finds this arena after a
    # crash in the middle of the replay does not use it.
    resident.finish(backup.epoch, memory)
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
    memory = _memory(attempt, backup, policy_state)
    resident.remember(memory)
    report = RecoveryReport(
        reason=resident.reason or "its state is not the one that the query goes on with",
        backup_epoch=backup.epoch,
        exact=True,
        bound=0.0,
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
    failures = history.slot_facts(control.operator, slot, control.epoch).failures
    if not commits:
        return _Backup(control.first_epoch - 1, [], b"", failures, found)
    newest = commits[-1]
    if not newest.exact:
        raise BackupUnreadableError(
            f"Slot {slot} of {control.operator!r} cannot be restored exactly.",
            why=f"Its newest backup, of epoch {newest.epoch}, was written under a policy that is not.",
            do="Start anew with an empty backup directory and Spark checkpoint, or go back to the "
            "policy that the backup was written with.",
        )
    return _Backup(newest.epoch, chain.frames, newest.policy_state, failures, found)


def _part(program: Program, resident: Resident, slot: int) -> _Backup:
    control, store = program.control, program.open_store()
    history = program.history()
    snapshot = history.complete_snapshot(control.epoch)
    found = time.perf_counter()
    if snapshot is None or snapshot.epoch != control.epoch - 1:
        raise LostStateError(
            f"Slot {slot} of {control.operator!r} has lost its state before epoch {control.epoch}.",
            why=resident.reason or "The resident state is not the one that the query goes on with.",
            do="Nothing: the query goes back to its newest complete snapshot.",
        )
    part = read_part(store, history, control.operator, slot, snapshot)
    facts = history.slot_facts(control.operator, slot, control.epoch)
    return _Backup(snapshot.epoch, part.frames, facts.policy_state, facts.failures, found)


def _memory(attempt: str, backup: _Backup, policy_state: SlotPolicyState) -> SlotMemory:
    full = sum(_bytes(frame) for frame in backup.frames if frame.header.kind == "full")
    return SlotMemory(
        lineage=attempt,
        failures=backup.failures + 1,
        policy_state=encode_policy_state(policy_state),
        sequence=1 + max((frame.header.sequence for frame in backup.frames), default=0),
        log_bytes=sum(_bytes(frame) for frame in backup.frames) - full,
        full_bytes=full,
        items=policy_state.items,
    )


def _bytes(frame: Frame) -> int:
    return sum(batch.nbytes for batches in frame.parts.values() for batch in batches)
