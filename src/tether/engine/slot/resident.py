"""A slot's resident state while a task works on it: what the slot protocol needs, wherever it is kept.

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
        """What the slot remembered when the state was as it is now."""
        return decode_memory(self.state.blob)


def bound(program: Program, state: SlotState) -> BoundState:
    """A new instance of the program's operator, bound to a state."""
    operator: Operator = pickle.loads(program.operator)  # noqa: S301 - the query's own
    operator.setup(state)
    return BoundState(state, operator)


class Resident(ABC):
    """One slot's resident state: there, or not (yet)."""

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
        """Whether an epoch was half applied when its process died."""
        return self.bound is not None and self.state.phase == Phase.APPLYING

    def memory(self) -> SlotMemory:
        """What the slot remembers beside its state."""
        return decode_memory(self.state.blob)

    def remember(self, memory: SlotMemory) -> None:
        """Replace it; rolled back with the state."""
        self.state.blob = encode_memory(memory)

    def finish(self, version: Epoch, memory: SlotMemory) -> None:
        """A state that was created is whole now: as of epoch ``version``."""
        self.remember(memory)
        self.state.finish_restore(version)

    @property
    @abstractmethod
    def note(self) -> bytes:
        """What the last task that came to the end of an epoch left for others of that epoch."""

    @abstractmethod
    def leave_note(self, note: bytes) -> None:
        """Replace it."""

    @abstractmethod
    def private_view(self) -> BoundState:
        """The state as it is now; what is done to the view, nobody else sees."""

    @abstractmethod
    def create(self) -> SlotState:
        """Make a new, empty state in place of whatever is there; its restore has begun."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the state for good."""

    def copy_own(self, usable: Callable[[Resident], bool]) -> bool:
        """Replace whatever is there by a copy of the query's own state.

        Args:
            usable: Whether that is as it must be.

        Returns:
            Whether it was here, and is copied now; hosts that cannot copy say no.
        """
        del usable
        return False

    def room(self) -> int:
        """Bytes that are free where the state is; -1 where nobody knows."""
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
        """Begin to write a frame; what it holds is copied before this returns.

        Args:
            program: Says where the store is.
            header: Of the frame.
            parts: Its content; the batches may lie in the state, which changes.
            number: The snapshot's, or the export's.
        """

    @abstractmethod
    def look(self, work: PartAtWork) -> PartDone | None:
        """How the writing of a frame ended; None while it continues."""


class SlotHost(Protocol):
    """Where a slot's task runs."""

    @property
    def executor(self) -> str:
        """Names the executor; no other one, earlier or later, has this name."""
        ...

    def attached(self, program: Program, resident: ResidentId) -> AbstractContextManager[Resident]:
        """A slot's resident state, nobody else's for the length of the block."""
        ...

    def forget(self, program: Program, resident: ResidentId) -> None:
        """Remove a slot's resident state."""
        ...
