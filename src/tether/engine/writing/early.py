"""Backups that start before they are required, written while later epochs run (AF-Stream 2019 §3.4.1).

Such a backup counts only when it is durable and a commit record names it. Until then the divergence is
computed without it and compared with θ as usual: an epoch that would end above θ does not wait for the
writer, but writes a backup of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.engine.messages import EarlyBackup, WrittenFrame
from tether.engine.writing.writer import grown, kind_of

if TYPE_CHECKING:
    from tether.engine.messages import SlotMemory
    from tether.engine.slot.resident import Resident
    from tether.engine.writing.writer import SlotWriter
    from tether.policies.instructions import BackUpState


def begin_early(
    writer: SlotWriter, resident: Resident, memory: SlotMemory, instruction: BackUpState
) -> SlotMemory:
    """Start to write entries that bring the divergence to the target, unless a write is under way."""
    if memory.early is not None:
        return memory
    before = resident.state.divergence(exact=True)
    pending = resident.state.begin_export(instruction.target)
    if pending is None:
        return memory
    exports = pending.exports
    kind = kind_of(resident, exports)
    entries = sum(export.entries for export in exports.values())
    after = pending.divergence_after
    header = writer.header(memory, kind, instruction.cause, entries, before=before, after=after)
    parts = {name: export.batches for name, export in exports.items()}
    work = resident.write_later(writer.program, header, parts, pending.token)
    early = EarlyBackup(
        work=work,
        kind=kind,
        cause=instruction.cause,
        entries=entries,
        carried=before,
        run=writer.program.control.run,
    )
    return msgspec.structs.replace(memory, early=early, sequence=header.sequence)


def end_early(
    resident: Resident, memory: SlotMemory, run: str
) -> tuple[WrittenFrame | None, SlotMemory]:
    """Count a backup from this epoch on if it has become durable; drop it if it never can.

    Args:
        resident: The state.
        memory: The slot's memory.
        run: The driver's run. A backup that was begun in an earlier one never counts: the driver of
            this one has removed all frames that no record names.
    """
    early, pending = memory.early, resident.state.pending
    if early is None or pending is None:
        return None, memory
    if early.run != run:
        return None, abandon_early(resident, memory)
    done = resident.look(early.work)
    if done is None:
        return None, memory
    memory = msgspec.structs.replace(memory, early=None)
    if done.ref is None:
        pending.abandon()
        return None, memory
    pending.settle()
    frame = WrittenFrame(
        ref=done.ref,
        kind=early.kind,
        cause=early.cause,
        entries=early.entries,
        carried=early.carried,
        divergence_before=early.carried,
        divergence_after=resident.state.divergence(exact=True),
        seconds=done.seconds,
    )
    sized = grown(memory, early.kind, done.ref.length)
    return frame, msgspec.structs.replace(sized, sequence=memory.sequence)


def abandon_early(resident: Resident, memory: SlotMemory) -> SlotMemory:
    """Cancel the backup that is under way, because another one is written now."""
    pending = resident.state.pending
    if pending is not None:
        pending.abandon()
    return msgspec.structs.replace(memory, early=None)
