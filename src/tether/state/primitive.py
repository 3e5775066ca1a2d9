"""What all built-in state primitives have in common: epochs, divergence, backup and restore."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tether.core.errors import BadValueError
from tether.state.header import PENDING_PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from tether.state.place import Place

FULL = {b"tether.part": b"full"}
PARTIAL = {b"tether.part": b"partial"}
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Export:
    """What a backup must write, copied out of the state."""

    batches: list[pa.RecordBatch]
    """The entries. Their schema's metadata says whether they are the whole state."""
    entries: int
    """Number of entries (rows) in the batches."""
    carried: float
    """By how much the divergence falls when they are durable."""
    divergence_after: float
    """The divergence that is left."""
    full: bool
    """Whether the batches replace all earlier ones."""

    @property
    def nbytes(self) -> int:
        """Bytes of the batches in memory, about what they take when written."""
        return sum(batch.nbytes for batch in self.batches)


class Primitive(ABC):
    """One named piece of a slot's state.

    Args:
        place: Where it lives.
        spec: Its description as stored in the arena: plain values only.
    """

    kind: ClassVar[str]

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        self.place = place
        self.spec = dict(spec)
        self.name: str = spec["name"]

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Kind, types and divergence as plain values: part of the program's fingerprint."""

    @abstractmethod
    def divergence(self, *, exact: bool = False) -> float:
        """Distance between the live state and the backups, never too small; 0 if not tracked."""

    @abstractmethod
    def dirty_entries(self) -> int:
        """Entries that may differ from the backups: what an exact export would look at."""

    def changed_entries(self) -> int:
        """Entries changed or added in this epoch: what a policy that loses nothing would write."""
        return 1  # a number or an object is one entry, and an epoch that touches neither is rare

    @abstractmethod
    def export(self, target: float, rounding: float = 0.0) -> Export:
        """Take out the fewest worst entries so that the divergence left is at most ``target``.

        Args:
            target: As told.
            rounding: Most divergence on top of it by which what is taken out may be rounded.
        """

    @abstractmethod
    def export_full(self, rounding: float = 0.0) -> Export:
        """Take out the whole state, rounded by at most so much divergence."""

    @abstractmethod
    def begin_export(self, target: float) -> Export:
        """Take out what ``export`` would, but count it as durable only when it is settled."""

    @abstractmethod
    def settle_export(self) -> None:
        """What ``begin_export`` took out is durable now; nothing happens if it took out nothing."""

    @abstractmethod
    def abandon_export(self) -> None:
        """What ``begin_export`` took out will never be durable."""

    @abstractmethod
    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply one exported part: its entries become both live and durable."""

    @abstractmethod
    def create(self) -> None:
        """Set up an empty primitive on a blank page, once."""

    @abstractmethod
    def begin(self) -> None:
        """Forget the journal of the epoch before."""

    def journal_bytes(self) -> int:
        """Memory of the old values that a rollback would put back; 0 where those are in the header."""
        return 0

    @abstractmethod
    def begin_step(self) -> None:
        """Another step of the epoch begins: changed entries are those that it changes."""

    @abstractmethod
    def commit(self) -> None:
        """The epoch is about to end: bring into the arena what is not there yet."""

    @abstractmethod
    def undo(self) -> None:
        """Put everything but the header's words back to the beginning of the epoch."""

    @abstractmethod
    def unstamp(self) -> None:
        """Forget which epoch journaled which entry."""

    @abstractmethod
    def refresh(self) -> None:
        """Follow what other processes did since this attachment was last used."""

    def _check_target(self, target: float) -> None:
        """Make sure that an export can be made now.

        Raises:
            BadValueError: No such target, nothing is tracked, or an export is being written.
        """
        self.place.stamp()
        if not self.place.track or math.isnan(target) or target < 0:
            raise BadValueError(
                f"The state {self.name!r} cannot be exported to a divergence of {target}.",
                why="A target is at least 0, and the state must be tracked for partial backups.",
                do="Give another target, or use export_full.",
            )
        self._expect_none_pending()

    def _expect_none_pending(self) -> None:
        if self.place.page.words[PENDING_PART]:
            raise BadValueError(
                f"The state {self.name!r} cannot be exported now.",
                why="An earlier export of it is still being written, and would become durable "
                "after this one.",
                do="Settle or abandon that one first.",
            )


def tagged(batch: pa.RecordBatch, metadata: dict[bytes, bytes]) -> pa.RecordBatch:
    """A batch whose schema says what part of the state it is."""
    return batch.replace_schema_metadata(metadata)


def is_full(batch: pa.RecordBatch) -> bool:
    """Whether a batch is of an export of the whole state."""
    return (batch.schema.metadata or {}).get(b"tether.part") == b"full"
