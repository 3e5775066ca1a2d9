"""The best plan as a linear programme, solved by HiGHS (the extra ``plan``).

Each tree T has a variable y, each slot t a variable r, whether it has a copy:

    maximise Σ weight · y,  with  y ≤ r for each slot of the tree,  Σ r ≤ copies,  r in {0, 1}.

Where r may be any number from 0 to 1, no plan is better than the solution: that is the bound. Where the
trees are too many to list, the recursion of the model itself is the programme: a survival s for
each slot, s ≤ r, and s no more than what it receives; a join receives no more than the least of its
streams. That is exact without joins, and with them it is a bound still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tether.core.errors import TetherError
from tether.planning.trees import members, tree_count, weighted_trees

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.planning.model import Model
    from tether.planning.streams import Flags, Stream

MOST_SOLVED = 20_000
"""Trees beyond which the programme is made of slots instead."""
SLACK = 1e-6
"""Larger than the rounding error of a solution; added to every bound."""
OPTIONS = {"output_flag": False, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-9, "threads": 1}
LONGEST_SECONDS = 60.0
"""A best plan is looked for so long: a few programmes of a thousand trees would take hours."""
BUDGET = 0
"""The row that limits the number of copies."""


class SolverMissingError(TetherError):
    """The extra ``plan`` is not installed."""

    code = "solver-missing"


class Relaxed(NamedTuple):
    """An upper limit of all plans with a number of copies, and how much one more copy raises it."""

    value: float
    per_copy: float


class Programme:
    """The linear programme of a model.

    Args:
        model: The model.
        seconds: Longest time for one plan.

    Raises:
        SolverMissingError: highspy is not installed.
    """

    def __init__(self, model: Model, seconds: float = LONGEST_SECONDS) -> None:
        self._highspy = _highspy()
        self._model, self._seconds = model, seconds
        rows = _Rows(model.size)
        if tree_count(model) <= MOST_SOLVED:
            self.exact = True
            """Whether it finds the best plan too, not only a bound."""
            _add_trees(rows, model)
        else:
            self.exact = not any(part.correlated for part in model.parts)
            _add_slots(rows, model)
        self._solver = rows.load(self._highspy)

    def relaxed(self, copies: int) -> Relaxed:
        """The bound on plans of that many copies."""
        self._solve(copies, self._highspy.HighsVarType.kContinuous)
        value = self._solver.getInfo().objective_function_value
        price = abs(self._solver.getSolution().row_dual[BUDGET])
        return Relaxed(min(1.0, value + SLACK), price)

    def best(self, copies: int) -> Flags:
        """The best plan of that many copies."""
        assert self.exact, "this programme is a bound only"
        self._solve(copies, self._highspy.HighsVarType.kInteger)
        values = np.array(self._solver.getSolution().col_value[: self._model.size])
        return self._model.useful(self._model.survival((values > 0.5)[:, None]))[:, 0]

    def _solve(self, copies: int, kind: Any) -> None:
        slots = self._model.size
        self._solver.changeColsIntegrality(slots, np.arange(slots), np.full(slots, kind))
        self._solver.changeRowBounds(BUDGET, 0.0, float(copies))
        # Its clock goes on from one solution to the next.
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + self._seconds)
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != self._highspy.HighsModelStatus.kOptimal:
            raise TetherError(
                "The best plan was not found.",
                why=f"The solver ended with: {self._solver.modelStatusToString(status)}.",
                do='Use the planner "structure-aware"; its plan comes with a bound.',
            )


class _Rows:
    """A programme under construction: Σ coefficient · variable ≤ limit, row by row.

    Variables are from 0 to 1; the first ones say which slots have copies.
    """

    def __init__(self, slots: int) -> None:
        self._gains = [0.0] * slots
        self._starts, self._limits = [0], list[float]()
        self._columns, self._values = list[int](), list[float]()
        self.add([(slot, 1.0) for slot in range(slots)])  # the budget

    def variable(self, gain: float = 0.0) -> int:
        """A new variable, and what it adds to the value."""
        self._gains.append(gain)
        return len(self._gains) - 1

    def add(self, terms: Iterable[tuple[int, float]], limit: float = 0.0) -> None:
        """A new row."""
        for column, value in terms:
            self._columns.append(column)
            self._values.append(value)
        self._starts.append(len(self._columns))
        self._limits.append(limit)

    def load(self, highspy: Any) -> Any:
        """A solver that holds the programme."""
        programme = highspy.HighsLp()
        programme.num_col_, programme.num_row_ = len(self._gains), len(self._limits)
        programme.sense_ = highspy.ObjSense.kMaximize
        programme.col_cost_ = np.array(self._gains)
        programme.col_lower_ = np.zeros(len(self._gains))
        programme.col_upper_ = np.ones(len(self._gains))
        programme.row_lower_ = np.full(len(self._limits), -highspy.kHighsInf)
        programme.row_upper_ = np.array(self._limits)
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        programme.a_matrix_.start_ = np.array(self._starts)
        programme.a_matrix_.index_ = np.array(self._columns)
        programme.a_matrix_.value_ = np.array(self._values)
        solver = highspy.Highs()
        for option, value in OPTIONS.items():
            solver.setOptionValue(option, value)
        solver.passModel(programme)
        return solver


def _add_trees(rows: _Rows, model: Model) -> None:
    for tree, weight in weighted_trees(model).items():
        whole = rows.variable(weight)
        for slot in members(tree):
            rows.add([(whole, 1.0), (slot, -1.0)])


def _add_slots(rows: _Rows, model: Model) -> None:
    survival = [rows.variable(float(worth)) for worth in model.worth]
    for slot, own in enumerate(survival):
        rows.add([(own, 1.0), (slot, -1.0)])
    for part in model.parts:
        each = [_received(rows, stream, survival) for stream in part.streams]
        for at, slot in enumerate(part.numbers):
            streams = [received[at] for received in each]
            if part.correlated:
                for terms in streams:
                    rows.add([(survival[slot], 1.0), *((one, -mix) for one, mix in terms)])
            elif streams:
                weights = [float(stream.weight[at]) for stream in part.streams]
                union = [
                    (one, -mix * weight)
                    for terms, weight in zip(streams, weights, strict=True)
                    for one, mix in terms
                ]
                rows.add([(survival[slot], 1.0), *union], float(part.outside[at]))


def _received(rows: _Rows, stream: Stream, survival: list[int]) -> list[list[tuple[int, float]]]:
    """For each receiver of a stream, the variables and coefficients of what it receives."""
    each = [[(survival[sender], mix) for sender, mix in senders] for senders in stream.to_each()]
    if not stream.full:
        return each
    # One variable for all receivers, or there would be a coefficient for every pair of slots.
    received = rows.variable()
    rows.add([(received, 1.0), *((one, -mix) for one, mix in each[0])])
    return [[(received, 1.0)]] * len(each)


def _highspy() -> Any:
    try:
        import highspy  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise SolverMissingError(
            "The best plan cannot be worked out.",
            why="highspy, which solves linear programmes, is not installed.",
            do="Install it with: pip install 'tether[plan]', or use another planner.",
        ) from None
    return highspy
