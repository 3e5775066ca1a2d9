"""The newest report of every slot, and how divergences went over the last epochs, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.ids import Slot

if TYPE_CHECKING:
    from tether.observe.facts import SlotsNow

CELLS = 600_000
"""Largest number of divergences that are remembered in all: of 1,000 slots, the last 600 epochs; 5 MB
with θ."""
LONGEST = 2_000
"""Largest number of epochs, even if there are few slots."""


class SlotCourse(NamedTuple):
    """One slot over the last epochs, oldest first."""

    at: list[float]
    epoch: list[int]
    divergence: list[float | None]
    theta: list[float | None]


class SlotHistory:
    """What slots reported at the ends of the last epochs: rings of numbers, one row an epoch."""

    def __init__(self) -> None:
        self.now: SlotsNow | None = None
        self._size = self._count = 0
        self._places: dict[tuple[int, int], int] = {}

    def add(self, slots: SlotsNow) -> None:
        """Take in all slots at the end of an epoch."""
        keys = list(zip(slots.operator, slots.slot, strict=True))
        if self.now is None or len(keys) != len(self._places) or keys != list(self._places):
            self._begin(keys)
        row = self._count % self._size
        self._at[row], self._epoch[row] = slots.at, slots.epoch
        self._divergence[row] = np.array(slots.divergence, np.float32)  # None becomes NaN
        self._theta[row] = np.array(slots.theta, np.float32)
        self._count += 1
        self.now = slots

    def _begin(self, keys: list[tuple[int, int]]) -> None:
        """Other slots than before, or the first ones."""
        self._places = {key: place for place, key in enumerate(keys)}
        self._size = max(2, min(LONGEST, CELLS // max(1, len(keys))))
        self._count = 0
        self._at, self._epoch = np.zeros(self._size), np.zeros(self._size, np.int64)
        self._divergence = np.zeros((self._size, len(keys)), np.float32)
        self._theta = np.zeros((self._size, len(keys)), np.float32)

    def course(self, operator: int, slot: Slot) -> SlotCourse | None:
        """How one slot went; None where there is no such slot."""
        place = self._places.get((operator, slot))
        if place is None:
            return None
        if self._count <= self._size:
            rows = np.arange(self._count)
        else:
            rows = np.arange(self._count, self._count + self._size) % self._size
        return SlotCourse(
            self._at[rows].tolist(),
            self._epoch[rows].tolist(),
            _plain(self._divergence[rows, place]),
            _plain(self._theta[rows, place]),
        )


def _plain(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[float | None]:
    known = np.isfinite(values)
    return [value if there else None for value, there in zip(values.tolist(), known, strict=True)]
