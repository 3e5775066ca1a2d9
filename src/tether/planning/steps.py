"""Steps that a plan could take next, and what each adds per copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.planning.complete import Completion
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.wiring import Floats, Ints

AHEAD = 64
"""How many copies are looked ahead."""
LEAST = 1e-12
"""A relative gain below this is a rounding error."""


class Steps:
    """Possible steps of a plan, each made complete where it would add nothing as it is.

    Args:
        model: The model.
        seeds: The steps, as sets of slots.
        alive: The plan so far.
        ways: How to complete them; of several, the one that adds most per copy is taken.
        most: How many slots a step may add. A step that needs more adds nothing.
    """

    def __init__(
        self, model: Model, seeds: Flags, alive: Flags, ways: Collection[Completion], most: int
    ) -> None:
        self._model, self._alive = model, alive
        before = model.value(alive)
        self.survival = model.survival(seeds | alive[:, None])
        """The survival of all slots, after each step."""
        self.added = model.useful(self.survival) & ~alive[:, None]
        """The slots of each step, without those that would be of no use."""
        gain = model.value_of(self.survival) - before
        self.cost = self.added.sum(axis=0)
        """Copies that each step takes."""
        fits = (self.cost <= most) & (gain > before * LEAST)
        self.gain = np.where(fits, gain, 0.0)
        """What each step adds to the value."""
        lacking = np.flatnonzero(self.gain <= 0)
        for way in ways if len(lacking) else ():
            whole = way.complete(seeds[:, lacking], alive)
            self._take_better(Steps(model, whole, alive, (), most), lacking)

    def _take_better(self, other: Steps, columns: np.ndarray) -> None:
        """Replace some steps by others where these add more per copy."""
        better = other.density > self.density[columns]
        columns = columns[better]
        for name in ("survival", "added", "gain", "cost"):
            getattr(self, name)[..., columns] = getattr(other, name)[..., better]

    @property
    def density(self) -> Floats:
        """What each step adds per copy: the profit density of PPA 2016 §IV-C1."""
        result: Floats = self.gain / np.maximum(self.cost, 1)
        return result

    def outlook(self, most: int) -> tuple[Floats, Ints]:
        """What each step adds per copy together with the cheap ones that it opens the way to.

        A slot that merges many senders costs a copy of its own once, and each sender after the first
        costs one: the step that opens it is worth more than it adds by itself.

        Args:
            most: How many slots may be added in all.

        Returns:
            The best density, and with how many copies it is reached.
        """
        alive = self._alive[:, None]
        whole = alive | self.added
        before = self._model.gains(alive, self._model.survival(alive))
        opened = np.where(whole, 0.0, self._model.gains(whole, self.survival) - before)
        opened = -np.sort(-np.maximum(opened, 0.0), axis=0)[:AHEAD]
        totals = np.cumsum(np.vstack([self.gain, opened]), axis=0)
        copies = np.maximum(self.cost + np.arange(len(totals))[:, None], 1)
        density = np.where((copies <= most) & (self.gain > 0), totals / copies, 0.0)
        best = np.argmax(density, axis=0)
        each = np.arange(len(best))
        return density[best, each], copies[best, each]
