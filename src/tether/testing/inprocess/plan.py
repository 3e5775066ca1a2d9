"""Rows to slots, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.spark.graph.plan import SlotRows
from tether.testing.inprocess.frames import LocalFrame, Seated, Shuffled

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from tether.protocols.copies import Seats
    from tether.testing.inprocess.session import LocalSession


class LocalPlan:
    """What :class:`tether.spark.graph.plan.EpochPlan` is on Spark.

    Args:
        session: Knows the slot of a row.
        key: Columns that say which rows belong together.
        slots: Number of slots.
    """

    def __init__(self, session: LocalSession, key: list[str], slots: int) -> None:
        self._session, self._key, self._slots = session, key, slots
        self._seats: Seats | None = None
        self._in_order = False

    def rows_by_slot(self, rows: LocalFrame) -> SlotRows:
        """The rows, each in the partition of its slot."""
        home, key, slots = self._session.home, self._key, self._slots
        if self._seats is not None:
            order = self._in_order
            seated = Seated(rows, self._seats, lambda row: home(row, key, slots), in_order=order)
            return SlotRows(seated)
        return SlotRows(Shuffled(rows, slots, lambda row: home(row, key, slots)))

    def slots_of(
        self, session: LocalSession, keys: pa.RecordBatch, types: Mapping[str, str]
    ) -> NDArray[np.int64]:
        """The slot of each key."""
        del session, types
        home, key, slots = self._session.home, self._key, self._slots
        return np.array([home(row, key, slots) for row in keys.to_pylist()], np.int64)

    def seat(self, seats: Seats, *, in_order: bool) -> None:
        """Send rows to every seat of their slot."""
        self._seats, self._in_order = seats, in_order
        self._session.tasks.seated = True

    folded = None
    """Nothing reads rows before this plan does."""

    def unfold(self) -> bool:
        """There is nothing to unfold."""
        return False

    def unfuse(self) -> bool:
        """Nothing is relied on here but this shuffle."""
        return False
