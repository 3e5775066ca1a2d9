"""Finding a slot's resident state from whatever Python worker Spark has given the task to.

Attachments are kept between epochs: a worker that gets a slot again only checks, in microseconds,
what others did to it meanwhile.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tether.core.errors import ArenaError
from tether.engine.messages import SlotMemory, decode_memory, encode_memory
from tether.engine.writing.background import forget_notes, notes_of
from tether.state.arena import Arena, Refused
from tether.state.header import Phase
from tether.state.identity import Identity, Owner
from tether.state.roots import arena_directory, arena_root, free_bytes, sweep
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.engine.slot.program import Program
    from tether.operator import Operator

ROOM_BYTES = 16 << 20
"""An arena is begun only where at least this much is free; growth is checked as it happens."""


class _Attachment:
    """An arena that this process has mapped, and the operator whose primitives are bound to it."""

    def __init__(self, arena: Arena, program: Program) -> None:
        self.arena = arena
        try:
            self.state = SlotState.open(arena, track=program.policy.keeps_backups)
            self.operator = _bound_operator(program, self.state)
        except BaseException:
            arena.release()
            raise


def _bound_operator(program: Program, state: SlotState) -> Operator:
    operator: Operator = pickle.loads(program.operator)  # noqa: S301 - the query's own
    operator.setup(state)
    return operator


class PrivateView(NamedTuple):
    """A state that only this task sees, and the operator bound to it."""

    state: SlotState
    operator: Operator

    def memory(self) -> SlotMemory:
        """What the slot remembered when the view's state was as it is now."""
        return decode_memory(self.state.blob)


_kept: dict[tuple[Path, bytes], _Attachment] = {}
"""Attachments of this process, by directory and operator."""


class Resident:
    """One slot's resident state while a task works on it: there, or not (yet)."""

    def __init__(self, program: Program, slot: int, owner: Owner) -> None:
        self._program, self._slot, self._owner = program, slot, owner
        self._directory = _directory(program, slot, owner)
        self._attachment: _Attachment | None = None
        self.reason = ""
        """Why the state cannot be used, where it cannot."""

    @property
    def found(self) -> bool:
        """Whether there is a whole state, of this program and query."""
        return self._attachment is not None

    @property
    def state(self) -> SlotState:
        """The state; only where it was found, or after ``create``."""
        assert self._attachment is not None
        return self._attachment.state

    @property
    def operator(self) -> Operator:
        """The operator, bound to the state."""
        assert self._attachment is not None
        return self._attachment.operator

    @property
    def arena(self) -> Arena:
        """Where the state is."""
        assert self._attachment is not None
        return self._attachment.arena

    def private_view(self) -> PrivateView:
        """The state as it is now; what is done to the view, nobody else sees."""
        state = SlotState.private(self.arena, track=self._program.policy.keeps_backups)
        return PrivateView(state, _bound_operator(self._program, state))

    @property
    def notes(self) -> Path:
        """What the names of notes beside the state begin with."""
        return notes_of(self._directory)

    @property
    def applying(self) -> bool:
        """Whether an epoch was half applied when its process died."""
        return self.found and self.state.phase == Phase.APPLYING

    def memory(self) -> SlotMemory:
        """What the slot remembers beside its state."""
        return decode_memory(self.state.blob)

    def remember(self, memory: SlotMemory) -> None:
        """Replace it; rolled back with the state."""
        self.state.blob = encode_memory(memory)

    def room(self) -> int:
        """Bytes that are free where arenas are."""
        return free_bytes(self._directory.parent)

    def attach(self) -> None:
        """Find the state and take its lock."""
        key = (self._directory, self._program.operator)
        kept = _kept.get(key)
        if kept is not None:
            kept.arena.acquire()
            if kept.state.refresh():
                self._take(kept)
                return
            kept.arena.release()
            del _kept[key]
        found = Arena.attach(self._directory, _identity(self._program, self._slot))
        if not isinstance(found, Arena):
            self.reason = found.reason if isinstance(found, Refused) else "no resident state here"
            return
        try:
            _kept[key] = _Attachment(found, self._program)
        except ArenaError as error:  # a file of it is gone: what is left is no state
            self.reason = f"{error.what} {error.why}"
            return
        self._take(_kept[key])

    def _take(self, attachment: _Attachment) -> None:
        if attachment.state.phase == Phase.RESTORING:
            self.reason = "the process that was restoring it died"
            attachment.arena.release()
            return
        self._attachment = attachment

    def create(self) -> SlotState:
        """Make a new, empty state in place of whatever is there; its restore has begun."""
        self.release()
        sweep(self._directory.parent)
        forget_notes(self.notes)
        owner = self._owner if self._program.control.arena_scope == "executor" else None
        arena = Arena.create(self._directory, _identity(self._program, self._slot), owner=owner)
        key = (self._directory, self._program.operator)
        _kept[key] = self._attachment = _Attachment(arena, self._program)
        self.state.begin_restore()
        return self.state

    def finish(self, version: int, memory: SlotMemory) -> None:
        """The new state is whole: as of epoch ``version``."""
        self.remember(memory)
        self.state.finish_restore(version)

    def release(self) -> None:
        """Let other processes at the state."""
        if self._attachment is not None:
            self._attachment.arena.release()
            self._attachment = None

    def remove(self) -> None:
        """Remove the state for good."""
        self.attach()
        if self._attachment is not None:
            self._attachment.arena.destroy()
            self._attachment = None
        _kept.pop((self._directory, self._program.operator), None)
        forget_notes(self.notes)


@contextmanager
def attached(program: Program, slot: int, owner: Owner) -> Iterator[Resident]:
    """A slot's resident state, locked for the length of the block."""
    resident = Resident(program, slot, owner)
    resident.attach()
    try:
        yield resident
    finally:
        resident.release()


def _identity(program: Program, slot: int) -> Identity:
    control = program.control
    return Identity(
        query=control.arena or control.query,
        operator=control.operator,
        slot=slot,
        slots=control.slots,
        fingerprint=control.fingerprint,
    )


def _directory(program: Program, slot: int, owner: Owner) -> Path:
    control = program.control
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    root = arena_root(
        ROOM_BYTES,
        fallback=Path(local) / "tether-arenas",
        preferred=control.arena_dir,
    )
    directory = arena_directory(root, _identity(program, slot))
    if control.arena_scope == "executor":
        return directory.with_name(f"{directory.name}-{owner.pid}-{owner.started}")
    return directory
