"""Plans that follow the structure of a topology (PPA 2016 §IV-C, algorithms 3, 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.core.errors import BadValueError
from tether.planning.complete import completions
from tether.planning.decompose import sub_topologies, units
from tether.planning.growing import GrowingFull, GrowingStructured, importance
from tether.planning.steps import Steps

if TYPE_CHECKING:
    from tether.planning.decompose import SubTopology
    from tether.planning.growing import Growing
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.topology import Topology

STARTS = TRIES = 16
"""Number of first steps that plans are grown from, and of exchanges that are tried before none is taken
to help. Fewer on large topologies, where one matters less and takes longer."""
WORK = 2_000
"""Both numbers are at most this divided by the number of slots; all exchanges, ten times that."""
ENOUGH = 1e-9
"""The relative gain that an exchange must bring."""


class StructureAware:
    """Chooses slots that form complete trees, without listing the trees (PPA 2016 algorithm 5).

    The topology is split into sub-topologies, each of which proposes steps of its own plan; the step
    that adds most to the whole per copy is taken, again and again. What a step adds is the gain in the
    metric of the whole, for gains of sub-topologies alone do not compare.

    Beyond the paper, which takes the best first step, and asks for a copy in every operator: a plan is
    grown from several first steps, it need not enter operators whose stream is one of several
    independent ones, and it is mended at its end. A slot is given up, with all that is of no use without
    it, and the plan grows again without that slot; the better plan stays.

    Args:
        topology: The topology.
        model: Its model.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        self._model, self._copies = model, 0
        self._most = max(1, WORK // model.size)
        self._completions = completions(model, importance(model))
        self._subs = [_Sub(topology, model, sub) for sub in sub_topologies(topology)]

    def choose(self, copies: int) -> Flags:
        """The slots of a plan with this number of copies."""
        self._copies = copies
        plans = [self._grown(start, self._model.none) for start in self._starts()]
        return self._mended(max(plans, key=self._model.value))

    def _starts(self) -> list[Flags]:
        """First steps that look best."""
        steps = self._steps(self._model.none, self._model.none)
        return list(steps.T[: min(STARTS, self._most)]) or [self._model.none]

    def _grown(self, alive: Flags, banned: Flags) -> Flags:
        """A plan after all the steps that it can take."""
        while (steps := self._steps(alive, banned)).size:
            alive = alive | steps[:, 0]
        return alive

    def _steps(self, alive: Flags, banned: Flags) -> Flags:
        """Steps that a plan can take, the best first."""
        left = self._copies - int(alive.sum())
        if left <= 0:
            return np.zeros((len(alive), 0), bool)
        seeds = np.concatenate([sub.steps(alive, left, banned) for sub in self._subs], axis=1)
        # A sub-topology can gain by itself and yet not be heard: then others must open the way.
        steps = Steps(self._model, seeds, alive, self._completions, left)
        density = np.where(steps.added[banned].any(axis=0), 0.0, steps.outlook(left)[0])
        best = np.argsort(-density, kind="stable")
        return steps.added[:, best[density[best] > 0]]

    def _mended(self, alive: Flags) -> Flags:
        """The plan after exchanges, as long as they help."""
        value, left = self._model.value(alive), 10 * self._most
        while left > 0 and alive.any():
            for given_up, rest in self._exchanges(alive):
                left -= 1
                other = self._grown(self._grown(rest, given_up), self._model.none)
                reached = self._model.value(other)
                if reached > value * (1 + ENOUGH):
                    alive, value = other, reached
                    break
            else:
                break
        return alive

    def _exchanges(self, alive: Flags) -> list[tuple[Flags, Flags]]:
        """Slots to give up, and what is of use without them; the most promising first."""
        model, slots = self._model, np.flatnonzero(alive)
        given_up = np.zeros((model.size, len(slots)), bool)
        given_up[slots, np.arange(len(slots))] = True
        survival = model.survival(alive[:, None] & ~given_up)
        rest = model.useful(survival)
        # About as much as the freed copies can add: the largest gains of single slots.
        gains = np.where(rest | given_up, 0.0, model.gains(rest, survival))
        freed = self._copies - rest.sum(axis=0)
        added = np.where(np.arange(model.size)[:, None] < freed, -np.sort(-gains, axis=0), 0.0)
        promise = model.value_of(survival) + added.sum(axis=0)
        best = np.argsort(-promise, kind="stable")[: min(TRIES, self._most)]
        return [(given_up[:, one], rest[:, one]) for one in best]


class Structured(StructureAware):
    """For topologies in which only links to the next sub-topology are full (PPA 2016 algorithm 3).

    Raises:
        BadValueError: The topology is of another kind.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        _insist(topology, "structured")
        super().__init__(topology, model)


class Full(StructureAware):
    """For topologies in which all links are full (PPA 2016 algorithm 4).

    Raises:
        BadValueError: The topology is of another kind.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        _insist(topology, "full")
        super().__init__(topology, model)


def _insist(topology: Topology, kind: str) -> None:
    found = sub_topologies(topology)
    if len(found) == 1 and found[0].kind == kind:
        return
    told = "; ".join(f"{sub.kind}: {', '.join(sub.operators)}" for sub in found)
    raise BadValueError(
        f"The planner {kind!r} does not fit this topology.",
        why=f"Its sub-topologies are {told}.",
        do='Use the planner "structure-aware", which plans each part by its kind.',
    )


class _Sub:
    """A sub-topology within the whole."""

    def __init__(self, topology: Topology, model: Model, sub: SubTopology) -> None:
        worth = {
            name: model.rates[model.part(name).slots]
            for name in sub.operators
            if model.ends[model.part(name).slots.start]
            or any(link.target not in sub.operators for link in topology.outputs_of(name))
        }
        local = model.within(sub.operators, worth)
        self._origin = local.origin
        self._growing: Growing = (
            GrowingFull(local)
            if sub.kind == "full"
            else GrowingStructured(local, units(topology, sub.operators))
        )

    def steps(self, alive: Flags, most: int, banned: Flags) -> Flags:
        """The best steps of this sub-topology, as slots of the whole."""
        local = self._growing.steps(alive[self._origin], most, banned[self._origin])
        steps = np.zeros((len(alive), local.shape[1]), bool)
        steps[self._origin] = local
        return steps
