"""The operator that the simulator runs: sums by key, in a real state primitive of Tether."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from tether.backup.framecodec import encode_frame
from tether.backup.frames import FrameHeader
from tether.core.ids import Epoch, Failures, FrameNumber, Lineage, Slot
from tether.simulate.items import AMOUNT, KEY
from tether.state.header import Phase
from tether.state.slot import SlotState
from tether.state.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.frames import Frame
    from tether.simulate.items import Run
    from tether.state.primitive import Export
    from tether.state.segment import Array
    from tether.state.table import Table

Kind = Literal["vector", "table"]
Norm = Literal["l1", "l2", "max"]


class Sums:
    """One slot's state: a ``Vector`` or ``Table`` of a ``SlotState`` on the heap.

    The same code that runs on Spark keeps the divergence, chooses what a partial backup holds,
    rolls back what was not committed, and restores.

    Args:
        keys: Keys are 0 to ``keys`` - 1.
        kind: Which primitive.
        norm: Its divergence.

    Example:
        >>> sums = Sums(4)
        >>> sums.state.begin(0)
        >>> sums.apply(np.array([[1, 1, 3], [5, 2, -4]]))
        >>> sums.values().tolist(), sums.state.divergence()
        ([0, 7, 0, -4], 11.0)
    """

    def __init__(self, keys: int, kind: Kind = "vector", norm: Norm = "l1") -> None:
        self.keys, self.norm = keys, norm
        self.state = SlotState.heap()
        self._held: Vector | Table
        if kind == "vector":
            self._held = self.state.vector("sums", keys, dtype="int64", divergence=norm)
        else:
            self._held = self.state.table(
                "sums", {"key": pa.int64()}, {"sum": "int64"}, divergence=norm
            )

    def apply(self, items: Array) -> None:
        """Take items in, within an epoch."""
        if isinstance(self._held, Vector):
            self._held.add(items[KEY], items[AMOUNT])
        else:
            self._held.add([pa.array(items[KEY])], sum=items[AMOUNT])

    def clear(self) -> None:
        """Start a window from nothing, within an epoch."""
        self._held.clear()

    def values(self) -> Array:
        """The sum of every key, as a copy."""
        if isinstance(self._held, Vector):
            return self._held.values.copy()
        dense = np.zeros(self.keys, np.int64)
        for batch in self._held.batches():
            dense[batch.column("key").to_numpy()] = batch.column("sum").to_numpy()
        return dense

    def committed(self) -> Array:
        """The sums at the end of the last committed epoch; the state is of no use after this."""
        if self.state.phase == Phase.APPLYING:
            self.state.rollback()
        return self.values()

    def restore(self, frames: Iterable[Frame], version: int) -> None:
        """Load backups into a state that was just made."""
        self.state.begin_restore()
        for frame in frames:
            self.state.restore(frame.parts)
        self.state.finish_restore(version)

    def distance(self, sums: Array, other: Array) -> float:
        """Distance of two lists of sums, in the units of the divergence."""
        apart = np.abs(sums - other).astype(np.float64)
        if self.norm == "max":
            return float(apart.max(initial=0.0))
        return float(apart.sum() if self.norm == "l1" else np.sqrt((apart * apart).sum()))


def add_up(sums: Array, runs: Iterable[Run]) -> Array:
    """The sums with some more items in them."""
    total = sums.copy()
    for run in runs:
        if run.window_end is not None:
            total[:] = 0
        else:
            np.add.at(total, run.items[KEY], run.items[AMOUNT])
    return total


def encode(exports: Mapping[str, Export], *, slot: int, epoch: int, failures: int) -> bytes:
    """A frame as the backup stores of Tether write it, checksums and all."""
    header = FrameHeader(
        query="simulation",
        operator="sums",
        slot=Slot(slot),
        epoch=Epoch(epoch),
        sequence=FrameNumber(epoch),
        failures=Failures(failures),
        kind="full" if all(export.full for export in exports.values()) else "partial",
        cause="theta",
        attempt="",
        lineage=Lineage(""),
        divergence_before=sum(e.carried + e.divergence_after for e in exports.values()),
        divergence_after=sum(export.divergence_after for export in exports.values()),
        carried=sum(export.carried for export in exports.values()),
        entries=sum(export.entries for export in exports.values()),
        written_at=0.0,
    )
    parts = {name: export.batches for name, export in exports.items()}
    return b"".join(bytes(piece) for piece in encode_frame(header, parts))
