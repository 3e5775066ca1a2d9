"""Parts of snapshots that a Python worker writes while later epochs run.

The task that copied a part hands it to a thread of its process and returns. When the frame is
durable the thread leaves a note beside the slot's arena; the slot's task of a later epoch, in whatever
process, finds the note and reports it. A process that dies leaves none: its death is seen, and the
part is reported as failed. So a part never counts before it is durable, and nobody waits for a writer.
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
    """Begin to write a frame; what it holds is copied before this returns.

    Args:
        program: Says where the store is.
        header: Of the frame.
        parts: Its content; the batches may lie in the arena, which changes.
        notes: What the names of the slot's notes begin with.
        number: The snapshot's, or the export's.
        keep: Attempts whose notes may still be asked for.
    """
    forget_notes(notes, keep)
    # Arrow's own form is the copy; every part keeps its metadata.
    copies = {name: pack_items(batches) for name, batches in parts.items()}
    note = _note(notes, header.attempt)

    def work() -> None:
        began = time.perf_counter()
        try:
            program.reach("during-writing", header.slot)
            content = {name: list(pa.ipc.open_stream(copy)) for name, copy in copies.items()}
            ref = program.open_store().append(header, content)
            done = PartDone(number=number, ref=ref, seconds=time.perf_counter() - began)
        except Exception as error:  # whatever it is, the snapshot is given up
            done = PartDone(number=number, failed=f"{type(error).__name__}: {error}")
        partial = note.with_name(f"{note.name}.writing")
        with contextlib.suppress(FileNotFoundError):  # the arenas are gone: nobody will ask
            partial.write_bytes(msgspec.json.encode(done))
            partial.rename(note)

    threading.Thread(target=work, name=f"tether-part-{number}", daemon=True).start()
    me = Owner.of(os.getpid())
    return PartAtWork(number=number, attempt=header.attempt, writer=(me.pid, me.started))


def look(notes: Path, work: PartAtWork) -> PartDone | None:
    """How the writing of a part ended; None while it goes on."""
    alive = Owner(*work.writer).alive()  # asked first: a note may be its last act
    try:
        return _NOTE.decode(_note(notes, work.attempt).read_bytes())
    except FileNotFoundError:
        if alive:
            return None
        return PartDone(number=work.number, failed="the process that was writing it died")


def notes_of(arena: Path) -> Path:
    """What the names of an arena's notes begin with."""
    return arena.with_name(f"{arena.name}{_BESIDE}")


def forget_notes(notes: Path, keep: Collection[str] = ()) -> None:
    """Remove the notes of earlier parts, and those of arenas that are gone.

    Args:
        notes: What the names of the notes begin with.
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
