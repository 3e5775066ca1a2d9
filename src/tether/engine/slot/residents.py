"""Finds a slot's resident state from any Python worker that Spark gives the task to.

Attachments are kept between epochs: a worker that gets a slot again only checks, in microseconds,
whether others have changed it meanwhile.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import ArenaError
from tether.core.ids import ResidentId
from tether.engine.slot.resident import Resident, bound
from tether.engine.writing.background import forget_notes, look, notes_of, write_later
from tether.state.arena import Arena, Refused
from tether.state.executor import executor_name
from tether.state.header import Phase
from tether.state.identity import Identity, Owner
from tether.state.roots import arena_directory, arena_root, free_bytes, sweep
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from tether.backup.frames import FrameHeader
    from tether.engine.messages import PartAtWork, PartDone
    from tether.engine.slot.program import Program
    from tether.engine.slot.resident import BoundState

ROOM_BYTES = 16 << 20
"""An arena is created only if at least this many bytes are free; later growth is checked as it
happens."""


class _Attachment:
    """An arena that this process has mapped, and the operator whose primitives are bound to it."""

    def __init__(self, arena: Arena, program: Program) -> None:
        self.arena = arena
        try:
            state = SlotState.open(arena, track=program.policy.keeps_backups)
            self.bound = bound(program, state)
        except BaseException:
            arena.release()
            raise


_kept: dict[tuple[Path, bytes], _Attachment] = {}
"""Attachments of this process, by directory and operator."""


class ArenaResident(Resident):
    """A resident state in an arena, which other processes of the node can attach to.

    Where slots have copies, every seat has one; see :mod:`tether.protocols.copies`.
    """

    def __init__(self, program: Program, resident_id: ResidentId, owner: Owner) -> None:
        super().__init__()
        self._program, self._resident_id, self._owner = program, resident_id, owner
        self._directory = _directory(program, resident_id, owner)
        self._attachment: _Attachment | None = None

    @property
    def bound(self) -> BoundState | None:
        """The state and its operator."""
        return None if self._attachment is None else self._attachment.bound

    @property
    def arena(self) -> Arena:
        """Where the state is."""
        if self._attachment is None:
            raise ArenaError("There is no resident state.", why=self.reason)
        return self._attachment.arena

    @property
    def note(self) -> bytes:
        """Kept in the arena."""
        return self.arena.note

    def leave_note(self, note: bytes) -> None:
        """Keep it in the arena."""
        self.arena.note = note

    def private_view(self) -> BoundState:
        """A view of the current state; changes to it are not visible to others."""
        state = SlotState.private(self.arena, track=self._program.policy.keeps_backups)
        return bound(self._program, state)

    @property
    def notes(self) -> Path:
        """Prefix of the names of notes beside the state."""
        return notes_of(self._directory)

    def write_later(
        self,
        program: Program,
        header: FrameHeader,
        parts: Mapping[str, Sequence[pa.RecordBatch]],
        number: int,
    ) -> PartAtWork:
        """Write a frame on a thread of this process, which leaves a note beside the arena."""
        before = self.memory()
        # If this epoch is rolled back, the frame that was being written when it began is asked for
        # again.
        at_work = [before.part, before.early.work if before.early else None]
        keep = {work.attempt for work in at_work if work is not None}
        return write_later(program, header, parts, self.notes, number, keep=keep)

    def look(self, work: PartAtWork) -> PartDone | None:
        """The result, if the writer has left its note."""
        return look(self.notes, work)

    def room(self) -> int:
        """Free bytes in the directory of arenas."""
        return free_bytes(self._directory.parent)

    def attach(self) -> None:
        """Attach to the state, and lock it."""
        key = (self._directory, self._program.operator)
        kept = _kept.get(key)
        if kept is not None:
            kept.arena.acquire()
            if kept.bound.state.refresh():
                self._take(kept)
                return
            kept.arena.release()
            del _kept[key]
        found = Arena.attach(self._directory, _identity(self._program, self._resident_id))
        if not isinstance(found, Arena):
            self.reason = found.reason if isinstance(found, Refused) else "no resident state here"
            return
        try:
            _kept[key] = _Attachment(found, self._program)
        except ArenaError as error:  # one of its files is missing: the rest is not usable
            self.reason = f"{error.what} {error.why}"
            return
        self._take(_kept[key])

    def _take(self, attachment: _Attachment) -> None:
        if attachment.bound.state.phase == Phase.RESTORING:
            self.reason = "the process that was restoring it died"
            attachment.arena.release()
            return
        self._attachment = attachment

    def create(self) -> SlotState:
        """Make a new, empty state in place of any other; its restore has begun."""
        self.release()
        sweep(self._directory.parent)
        forget_notes(self.notes)
        owner = self._owner if self._program.control.arena_scope == "executor" else None
        arena = Arena.create(
            self._directory, _identity(self._program, self._resident_id), owner=owner
        )
        key = (self._directory, self._program.operator)
        _kept[key] = self._attachment = _Attachment(arena, self._program)
        self.state.begin_restore()
        return self.state

    def copy_own(self, usable: Callable[[Resident], bool]) -> bool:
        """Put a copy of the query's own state in place of any other, if that state is on this node."""
        control = msgspec.structs.replace(self._program.control, arena="")
        own = ArenaResident(replace(self._program, control=control), self._resident_id, self._owner)
        own.attach()
        try:
            if not usable(own):
                return False
            self.release()
            owner = self._owner if control.arena_scope == "executor" else None
            identity = _identity(self._program, self._resident_id)
            arena = own.arena.copy(self._directory, identity, owner=owner)
        finally:
            own.release()
        key = (self._directory, self._program.operator)
        _kept[key] = self._attachment = _Attachment(arena, self._program)
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._attachment is not None:
            self._attachment.arena.release()
            self._attachment = None

    def remove(self) -> None:
        """Remove the state for good, and files of one that was not completed or only partly removed."""
        self.release()  # from here on ``discard`` holds the lock
        _kept.pop((self._directory, self._program.operator), None)
        Arena.discard(self._directory, _identity(self._program, self._resident_id))
        forget_notes(self.notes)


@contextmanager
def attached(program: Program, resident_id: ResidentId, owner: Owner) -> Iterator[ArenaResident]:
    """A slot's resident state, locked for the length of the block."""
    resident = ArenaResident(program, resident_id, owner)
    resident.attach()
    try:
        yield resident
    finally:
        resident.release()


class ArenaHost:
    """Runs slots on arenas of this node.

    Args:
        owner: The executor's process; its death ends an executor-scoped arena.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    @property
    def executor(self) -> str:
        """A name for the executor that no other, earlier or later, has on this host."""
        return executor_name(self._owner)

    def attached(
        self, program: Program, resident: ResidentId
    ) -> AbstractContextManager[ArenaResident]:
        """A slot's resident state, locked for the length of the block."""
        return attached(program, resident, self._owner)

    def forget(self, program: Program, resident: ResidentId) -> None:
        """Remove a slot's resident state."""
        ArenaResident(program, resident, self._owner).remove()


def _identity(program: Program, resident_id: ResidentId) -> Identity:
    control = program.control
    return Identity(
        query=control.arena or control.query,
        operator=control.operator,
        slot=resident_id,
        slots=control.slots,
        fingerprint=control.fingerprint,
    )


def _directory(program: Program, resident_id: ResidentId, owner: Owner) -> Path:
    control = program.control
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    root = arena_root(
        ROOM_BYTES,
        fallback=Path(local) / "tether-arenas",
        preferred=control.arena_dir,
    )
    directory = arena_directory(root, _identity(program, resident_id))
    if control.arena_scope == "executor":
        return directory.with_name(f"{directory.name}-{owner.pid}-{owner.started}")
    return directory
