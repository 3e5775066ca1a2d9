"""A slot's resident state while a task works on it, wherever it is kept.

Two kinds: in an arena of memory-mapped files that any process of the node can attach to
(:mod:`tether.engine.slot.residents`), and on the heap of one process (:mod:`tether.engine.slot.heap`).
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tether.core.errors import ArenaError
from tether.core.ids import Epoch, ResidentId
from tether.engine.messages import SlotMemory, decode_memory, encode_memory
from tether.state.header import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from tether.backup.frames import FrameHeader
    from tether.engine.messages import PartAtWork, PartDone
    from tether.engine.slot.program import Program
    from tether.operator import Operator
    from tether.state.slot import SlotState


class BoundState(NamedTuple):
    """A state, and the operator whose primitives are bound to it."""

    state: SlotState
    operator: Operator

    def memory(self) -> SlotMemory:
        """The slot's memory as of this state."""
        return decode_memory(self.state.blob)


def bound(program: Program, state: SlotState) -> BoundState:
    """A new instance of the program's operator, bound to a state."""
    operator: Operator = pickle.loads(program.operator)  # noqa: S301 - the query's own
    operator.setup(state)
    return BoundState(state, operator)


class Resident(ABC):
    """One slot's resident state, which may be missing."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the state cannot be used, where it cannot."""

    @property
    @abstractmethod
    def bound(self) -> BoundState | None:
        """The state and its operator; None where there is none of this program and query."""

    @property
    def found(self) -> bool:
        """Whether there is a whole state, of this program and query."""
        return self.bound is not None

    @property
    def _there(self) -> BoundState:
        if self.bound is None:
            raise ArenaError("There is no resident state.", why=self.reason)
        return self.bound

    @property
    def state(self) -> SlotState:
        """The state; only where it was found, or after ``create``."""
        return self._there.state

    @property
    def operator(self) -> Operator:
        """The operator, bound to the state."""
        return self._there.operator

    @property
    def applying(self) -> bool:
        """Whether a process died in the middle of applying an epoch."""
        return self.bound is not None and self.state.phase == Phase.APPLYING

    def memory(self) -> SlotMemory:
        """What the slot remembers beside its state."""
        return decode_memory(self.state.blob)

    def remember(self, memory: SlotMemory) -> None:
        """Replace it. It is rolled back with the state."""
        self.state.blob = encode_memory(memory)

    def finish(self, version: Epoch, memory: SlotMemory) -> None:
        """Mark a created state as complete, as of epoch ``version``."""
        self.remember(memory)
        self.state.finish_restore(version)

    @property
    @abstractmethod
    def note(self) -> bytes:
        """The note of the last task that finished an epoch, for later tasks of that epoch."""

    @abstractmethod
    def leave_note(self, note: bytes) -> None:
        """Replace it."""

    @abstractmethod
    def private_view(self) -> BoundState:
        """A view of the current state; changes to it are not visible to others."""

    @abstractmethod
    def create(self) -> SlotState:
        """Make a new, empty state in place of any other; its restore has begun."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the state for good."""

    def copy_own(self, usable: Callable[[Resident], bool]) -> bool:
        """Put a copy of the query's own state in place of any other.

        Args:
            usable: Whether that state may be used.

        Returns:
            Whether it was here and has been copied; False on hosts that cannot copy.
        """
        del usable
        return False

    def room(self) -> int:
        """Free bytes where the state is kept; -1 if not known."""
        return -1

    # ---- frames that are written while later epochs run ----------------------------------------

    @abstractmethod
    def write_later(
        self,
        program: Program,
        header: FrameHeader,
        parts: Mapping[str, Sequence[pa.RecordBatch]],
        number: int,
    ) -> PartAtWork:
        """Begin to write a frame; its content is copied before this returns.

        Args:
            program: Has the address of the store.
            header: Of the frame.
            parts: Its content. The batches may be views of the state, which changes later.
            number: The snapshot's, or the export's.
        """

    @abstractmethod
    def look(self, work: PartAtWork) -> PartDone | None:
        """How the writing of a frame ended; None while it continues."""


class SlotHost(Protocol):
    """Where a slot's task runs."""

    @property
    def executor(self) -> str:
        """A name of the executor that no other one, earlier or later, has."""
        ...

    def attached(self, program: Program, resident: ResidentId) -> AbstractContextManager[Resident]:
        """A slot's resident state, locked for the length of the block."""
        ...

    def forget(self, program: Program, resident: ResidentId) -> None:
        """Remove a slot's resident state."""
        ...
