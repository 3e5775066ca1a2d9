"""Parts of snapshots that a Python worker writes while later epochs run.

The task that copied a part hands it to a thread of its process and returns. When the frame is
durable the thread leaves a note beside the slot's arena; the slot's task of a later epoch, in whatever
process, finds the note and reports it. A process that dies leaves no note; its death is noticed, and the
part is reported as failed. So a part never counts before it is durable, and no task waits for a writer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.engine.messages import PartAtWork, PartDone
from tether.engine.writing.items import pack_items
from tether.state.identity import Owner

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tether.backup.frames import FrameHeader
    from tether.engine.slot.program import Program

_BESIDE = ".part"
_NOTE = msgspec.json.Decoder(PartDone)


def write_later(
    program: Program,
    header: FrameHeader,
    parts: Mapping[str, Sequence[pa.RecordBatch]],
    notes: Path,
    number: int,
    *,
    keep: Collection[str] = (),
) -> PartAtWork:
    """Begin to write a frame; its content is copied before this returns.

    Args:
        program: Has the address of the store.
        header: Of the frame.
        parts: Its content. The batches may be views of the arena, which changes later.
        notes: Prefix of the names of the slot's notes.
        number: The snapshot's, or the export's.
        keep: Attempts whose notes may still be needed.
    """
    forget_notes(notes, keep)
    # Serialising to Arrow makes the copy; every part keeps its metadata.
    copies = {name: pack_items(batches) for name, batches in parts.items()}
    note = _note(notes, header.attempt)

    def work() -> None:
        began = time.perf_counter()
        try:
            program.reach("during-writing", header.slot)
            content = {name: list(pa.ipc.open_stream(copy)) for name, copy in copies.items()}
            ref = program.open_store().append(header, content)
            done = PartDone(number=number, ref=ref, seconds=time.perf_counter() - began)
        except Exception as error:  # after any failure the snapshot is given up
            done = PartDone(number=number, failed=f"{type(error).__name__}: {error}")
        partial = note.with_name(f"{note.name}.writing")
        with contextlib.suppress(FileNotFoundError):  # no task will look for the note
            partial.write_bytes(msgspec.json.encode(done))
            partial.rename(note)

    threading.Thread(target=work, name=f"tether-part-{number}", daemon=True).start()
    me = Owner.of(os.getpid())
    return PartAtWork(number=number, attempt=header.attempt, writer=(me.pid, me.started))


def look(notes: Path, work: PartAtWork) -> PartDone | None:
    """How the writing of a part ended; None while it goes on."""
    alive = Owner(*work.writer).alive()  # checked before the note: it may end after writing
    try:
        return _NOTE.decode(_note(notes, work.attempt).read_bytes())
    except FileNotFoundError:
        if alive:
            return None
        return PartDone(number=work.number, failed="the process that was writing it died")


def notes_of(arena: Path) -> Path:
    """Prefix of the names of an arena's notes."""
    return arena.with_name(f"{arena.name}{_BESIDE}")


def forget_notes(notes: Path, keep: Collection[str] = ()) -> None:
    """Remove the notes of earlier parts, and those of arenas that are gone.

    Args:
        notes: Prefix of the names of the notes.
        keep: Attempts whose notes stay.
    """
    for note in notes.parent.glob(f"*{_BESIDE}.*"):
        arena = note.name.partition(_BESIDE)[0]
        if note.name.removeprefix(f"{notes.name}.") in keep:
            continue
        if note.name.startswith(f"{notes.name}.") or not (note.parent / arena).exists():
            note.unlink(missing_ok=True)


def _note(notes: Path, attempt: str) -> Path:
    return notes.with_name(f"{notes.name}.{attempt}")
