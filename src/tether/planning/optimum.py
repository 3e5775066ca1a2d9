"""The best plan there is, and a bound on all plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tether.core.errors import BadValueError
from tether.planning.factors import factors
from tether.planning.programme import LONGEST_SECONDS, SLACK, Programme
from tether.planning.trees import tree_count

if TYPE_CHECKING:
    from tether.planning.factors import Factor
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.wiring import Floats


class Optimum:
    """What can be reached with each number of copies; remembers what it has worked out.

    The copies are shared out among the factors of the model so that the product of what each can
    reach at most is largest. What a factor can reach is known roughly at first, and worked out for those
    numbers of copies that the best sharing asks for, until there is nothing rough in it.

    Args:
        model: The model.
        seconds: Longest time for the best plan of a factor.
    """

    def __init__(self, model: Model, seconds: float = LONGEST_SECONDS) -> None:
        self._model = model
        self._curves = [_curve(factor, seconds) for factor in factors(model)]

    def bound(self, copies: int) -> float:
        """What no plan of that many copies surpasses.

        Raises:
            SolverMissingError: highspy is needed, and is not installed.
        """
        while True:
            value, shares = self._share_out(copies)
            rough = [
                (curve, share)
                for curve, share in zip(self._curves, shares, strict=True)
                if not curve.bounded[share]
            ]
            if not rough:
                return value
            for curve, share in rough:
                curve.find_bound(share)

    def best(self, copies: int) -> Flags:
        """The best plan of that many copies.

        Raises:
            SolverMissingError: highspy is needed, and is not installed.
            BadValueError: The topology is too large.
            TetherError: It was not found in time.
        """
        while True:
            self.bound(copies)
            _, shares = self._share_out(copies)
            rough = [
                (curve, share)
                for curve, share in zip(self._curves, shares, strict=True)
                if share not in curve.plans
            ]
            if not rough:
                break
            for curve, share in rough:
                curve.find_best(share)
        chosen = self._model.none
        for curve, share in zip(self._curves, shares, strict=True):
            chosen[curve.model.origin] = curve.plans[share]
        return chosen

    def _share_out(self, copies: int) -> tuple[float, list[int]]:
        """The largest product of what the factors can reach at most, and the copies of each."""
        best, choices = np.ones(copies + 1), []
        for curve in self._curves:
            reach = curve.most[: copies + 1] ** curve.power
            grown, choice = np.full(copies + 1, -1.0), np.zeros(copies + 1, np.int64)
            for share, value in enumerate(reach):
                product = best[: copies + 1 - share] * value
                better = product > grown[share:]
                grown[share:][better] = product[better]
                choice[share:][better] = share
            best = grown
            choices.append(choice)
        shares, left = [], copies
        for choice in reversed(choices):
            shares.append(int(choice[left]))
            left -= shares[-1]
        return float(min(1.0, best[copies])), shares[::-1]


class _Curve(Protocol):
    """What a factor can reach with each number of copies."""

    model: Model
    power: int
    most: Floats
    """A bound for each number of copies."""
    bounded: Flags
    """For which numbers it is a good one."""
    plans: dict[int, Flags]
    """Best plans, as far as they are known; for these the bound is what they reach."""

    def find_bound(self, copies: int) -> None: ...
    def find_best(self, copies: int) -> None: ...


class _OneOperator:
    """A factor of a single operator: the slots of the most worth, as many as there are copies."""

    def __init__(self, factor: Factor) -> None:
        self.model, self.power = factor.model, factor.power
        order = np.argsort(-self.model.worth, kind="stable")
        self.most = np.concatenate([[0.0], np.cumsum(self.model.worth[order])])
        self.bounded = np.ones(len(self.most), bool)
        place = np.argsort(order)
        self.plans = {copies: place < copies for copies in range(len(self.most))}

    def find_bound(self, copies: int) -> None:
        """Nothing to find."""

    def find_best(self, copies: int) -> None:
        """Nothing to find."""


class _Solved:
    """A factor whose linear programme is solved where needed."""

    def __init__(self, factor: Factor, seconds: float) -> None:
        self.model, self.power, self._seconds = factor.model, factor.power, seconds
        self.most = np.ones(self.model.size + 1)
        self.most[0] = 0.0
        self.bounded = np.zeros(len(self.most), bool)
        self.bounded[[0, -1]] = True
        self.plans = {0: self.model.none, self.model.size: ~self.model.none}
        self._programme: Programme | None = None

    def find_bound(self, copies: int) -> None:
        """Solve the relaxation. It is concave in the copies: its slope bounds all other numbers too."""
        found = self._solver().relaxed(copies)
        away = np.arange(len(self.most)) - copies
        slope = found.per_copy + np.where(away > 0, SLACK, -SLACK)
        self.most = np.minimum(self.most, np.maximum(0.0, found.value + slope * away))
        self.bounded[copies] = True

    def find_best(self, copies: int) -> None:
        """Solve the programme itself."""
        solver = self._solver()
        if not solver.exact:
            raise BadValueError(
                f"The best plan cannot be worked out: {tree_count(self.model):,} complete trees.",
                why="The topology joins streams that are too wide for the linear programme.",
                do='Use the planner "structure-aware"; its plan comes with a bound.',
            )
        self.plans[copies] = solver.best(copies)
        value = self.model.value(self.plans[copies])
        self.most[: copies + 1] = np.minimum(self.most[: copies + 1], value)

    def _solver(self) -> Programme:
        if self._programme is None:
            self._programme = Programme(self.model, self._seconds)
        return self._programme


def _curve(factor: Factor, seconds: float) -> _Curve:
    single = len(factor.model.parts) == 1 and not factor.model.parts[0].streams
    return _OneOperator(factor) if single else _Solved(factor, seconds)
