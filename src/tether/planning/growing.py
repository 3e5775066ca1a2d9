"""How the plan of a sub-topology grows: the next slots, by what each copy of them adds.

Both kinds are asked for the best next step of a plan (PPA 2016 algorithms 3 and 4); which sub-topology
takes its step is for the whole to decide (algorithm 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tether.planning.complete import completions
from tether.planning.segments import segments
from tether.planning.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.wiring import Floats

CHOICES = 16
"""How many steps of a structured sub-topology are offered to the whole."""
AT_ONCE = 256
"""Sets of slots that are looked at together: memory."""


class Growing(Protocol):
    """The plan of a sub-topology, step by step."""

    def steps(self, alive: Flags, most: int, banned: Flags) -> Flags:
        """The best sets of slots to add next, a column each; none if nothing adds anything.

        Args:
            alive: The plan so far, of which every slot is of use within the sub-topology.
            most: How many may be added.
            banned: Slots that may not.
        """
        ...


def importance(model: Model) -> Floats:
    """What each slot adds if it is the only one of its operator, and all others live.

    The δ of PPA 2016 §IV-C2.
    """
    found = np.empty(model.size)
    for part in model.parts:
        slots = len(part.numbers)
        cases = np.ones((model.size, slots + 1), bool)
        cases[part.slots] = np.eye(slots, slots + 1, dtype=bool)  # the last case has none
        values = model.values(cases)
        found[part.slots] = values[:-1] - values[-1]
    return found


class GrowingFull:
    """A full sub-topology (PPA 2016 algorithm 4).

    Which slot of an operator is best does not depend on the others, so only the best one left of each
    operator is looked at; the first step takes a whole tree of them.

    Args:
        model: The sub-topology's model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        scores = importance(model)
        self._completions = completions(model, scores)
        self._order = [
            part.slots.start + np.argsort(-scores[part.slots], kind="stable")
            for part in model.parts
        ]

    def steps(self, alive: Flags, most: int, banned: Flags) -> Flags:
        """See ``Growing``."""
        taken = alive | banned
        best = [left[0] for order in self._order if (left := order[~taken[order]]).size]
        seeds = np.zeros((self._model.size, len(best)), bool)
        seeds[best, np.arange(len(best))] = True
        steps = Steps(self._model, seeds, alive, self._completions, most)
        return steps.added[:, steps.gain > 0]


class GrowingStructured:
    """A structured sub-topology (PPA 2016 algorithm 3).

    Looks at every segment of every unit: by itself if that adds to the output, or else with what
    makes it a complete tree. Steps are compared by what they add per copy.

    Beyond the paper, a step is also given credit for the cheap ones that it opens the way to: a slot
    that merges many senders costs a copy of its own once, and each sender after the first costs
    one. And what has been worked out for a segment is kept until a slot is added that can be in a
    tree with it.

    Args:
        model: The sub-topology's model.
        parts: Its units: names of operators.
    """

    def __init__(self, model: Model, parts: Collection[Collection[str]]) -> None:
        self._model = model
        self._completions = completions(model, importance(model))
        self._segments = np.concatenate([segments(model, part) for part in parts], axis=1)
        self._alive, self._most = model.none, 0
        self._stale = np.ones(self._segments.shape[1], bool)
        self._added = np.zeros_like(self._segments)
        self._density = np.zeros(len(self._stale))
        self._cost = np.zeros(len(self._stale), np.int64)
        self._span = np.zeros(len(self._stale), np.int64)

    def steps(self, alive: Flags, most: int, banned: Flags) -> Flags:
        """See ``Growing``."""
        self._forget(alive, most)
        stale = np.flatnonzero(self._stale)
        for some in np.split(stale, range(AT_ONCE, len(stale), AT_ONCE)):
            self._look(some, most)
        self._stale[:] = False
        fits = (self._cost <= most) & ~self._added[banned].any(axis=0)
        density = np.where(fits, self._density, 0.0)
        best = np.argsort(-density, kind="stable")[:CHOICES]
        return self._added[:, best[density[best] > 0]]

    def _forget(self, alive: Flags, most: int) -> None:
        """Mark what must be worked out again for this plan."""
        if most > self._most or (self._alive & ~alive).any():
            self._stale[:] = True
        else:
            near = self._together(alive & ~self._alive)
            # A step that was no use has no slots of its own yet: those that its segment lacks count.
            self._stale |= self._added[near].any(axis=0)
            self._stale |= self._segments[near & ~alive].any(axis=0)
            self._stale |= (self._span > most) & (self._cost <= most)
        self._alive, self._most = alive.copy(), most

    def _together(self, slots: Flags) -> Flags:
        """Slots that can be in one tree with any of these: before them, behind them, or joined."""
        behind, before = slots[:, None].copy(), slots[:, None].copy()
        for part in self._model.parts:
            for stream in part.streams:
                behind[stream.receiving] |= stream.any_sender(behind)
        for part in reversed(self._model.parts):
            wanted = before | behind if part.correlated else before
            for stream in part.streams:
                before[stream.sending] |= stream.any_receiver(wanted)
        return (behind | before)[:, 0]

    def _look(self, columns: np.ndarray, most: int) -> None:
        """Work out what some segments add to the plan, and per copy."""
        model = self._model
        steps = Steps(model, self._segments[:, columns], self._alive, self._completions, most)
        self._added[:, columns] = steps.added
        self._cost[columns] = steps.cost
        self._density[columns], self._span[columns] = steps.outlook(most)
