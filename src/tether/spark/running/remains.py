"""The remains of a take-over in the checkpoint directory: a note, and names of arenas."""

from __future__ import annotations

import msgspec

from tether.core.errors import QueryRefusedError
from tether.protocols import take_over as to
from tether.spark.logs.note_file import NoteFile


class Arenas(msgspec.Struct, frozen=True):
    """Names of resident state that a restart must know."""

    current: str = ""
    """The query's, where a twin has taken over; else its own id names it."""
    twins: tuple[str, ...] = ()
    """Arenas that earlier twins may have left."""


def note_file(checkpoint: str) -> NoteFile[to.Note]:
    """The file with the protocol's note."""
    return NoteFile(checkpoint, "take-over.json", to.Note)


def arenas_file(checkpoint: str) -> NoteFile[Arenas]:
    """The file with the names of arenas."""
    return NoteFile(checkpoint, "arenas.json", Arenas)


def left_behind(checkpoint: str) -> bool:
    """Whether an earlier driver has left anything of a take-over, finished or not."""
    return arenas_file(checkpoint).read() is not None


def unfinished(checkpoint: str) -> to.Note | None:
    """The note of a take-over that an earlier driver began and did not finish, if there is one."""
    return note_file(checkpoint).read()


def refuse_unfinished(note: to.Note | None) -> None:
    """Refuse to use a tentative state as the query's.

    Raises:
        QueryRefusedError: It would be used.
    """
    if note is not None:
        raise QueryRefusedError(
            f"The query's state lacks rows: it is tentative since epoch {note.since}.",
            why="After a loss under barrier a twin was reading them again, and has not taken over.",
            do="Start it with Barrier(…) until it is exact again, then with another policy.",
        )
