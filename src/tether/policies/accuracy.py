"""From an accuracy that the user can state to the budget that gives it.

Θ, L and Γ are the system's words. A user thinks in "keys below 3 MB must not be reported", "the
total within 0.1 %", "the error bar at most 1 % wider". Each function here takes such a wish and
gives the largest Θ that fulfils it, with the reasoning in words and numbers (AF-Stream 2019 §4,
appendix A).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from tether.core.budget import Budget
from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.policies.approximate import Approximate

Divergence = Literal["l1", "l2", "max", "count"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A budget chosen for an accuracy, and why it is enough.

    Args:
        budget: What to give to ``Approximate``.
        divergence: The divergence in which the state must be measured for the reasoning to hold.
        because: The derivation, one step a line, ending with the guarantee.

    Example:
        >>> print(absolute_error(100, of="key", max_item=1, max_lost_items=20).explain())
        1. Each key may be wrong by at most 100.
        2. Lost items can take 20 x 1 = 20 of that.
        3. max_state_error = 100 - 20 = 80, measured as max: the largest difference of any key.
    """

    budget: Budget
    divergence: Divergence
    because: tuple[str, ...]

    def explain(self) -> str:
        """The derivation as numbered lines, for ``--explain``."""
        return "\n".join(f"{number}. {line}" for number, line in enumerate(self.because, 1))

    def policy(self, **settings: Any) -> Approximate:
        """The policy that keeps to the budget; ``settings`` as for ``Approximate``.

        Example:
            >>> absolute_error(100, of="total").policy().max_state_error
            100.0
        """
        return Approximate(
            self.budget.max_state_error,
            self.budget.max_lost_items,
            self.budget.max_unacked_items,
            **settings,
        )


def count_min_size(
    *, total: float, threshold: float, epsilon: float, delta: float
) -> tuple[int, int]:
    """Rows and counters per row of a Count-Min Sketch that errs with probability δ.

    A row over-counts a key by total/width on average, so by Markov's inequality it does so by εφ or
    more with probability at most 1/2 if width = 2·total/(ε·φ), and all rows do with 2^-rows ≤ δ.
    The paper's Lemma 1 has half that width, for which the inequality says nothing (probability 1).

    Args:
        total: Sum of all values in the window (the paper's U).
        threshold: φ, the value above which a key is a heavy hitter.
        epsilon: Fraction of φ, between 0 and 1.
        delta: Probability, between 0 and 1.

    Example:
        >>> count_min_size(total=40 * 2**30, threshold=10 * 2**20, epsilon=0.5, delta=1 / 16)
        (4, 16384)
    """
    total = amount("total", total, unit="the stream's values", zero=None, infinite=None)
    threshold = amount("threshold", threshold, unit="the values", zero=None, infinite=None)
    epsilon, delta = _fraction("epsilon", epsilon), _fraction("delta", delta)
    return math.ceil(-math.log2(delta)), math.ceil(2 * total / (epsilon * threshold))


def heavy_hitters(
    *,
    threshold: float,
    epsilon: float,
    certain_below: float,
    max_item: float = 0.0,
    max_lost_items: float = 0.0,
) -> Choice:
    """Budget for heavy hitters by a Count-Min Sketch with compensation (Theorem 2).

    Guarantee: every key of at least φ is reported; one below ``certain_below`` is with at most the
    sketch's own probability δ. After each loss every counter must be raised by what can have been
    lost: ``Thresholds.state_error(α)`` of the moment before. So it holds for any number of
    failures, not only for the one of the theorem: like the losses, what is added sums up to
    Θ + α·L at most.

    Args:
        threshold: φ, the value from which a key is a heavy hitter.
        epsilon: ε of the sketch, a fraction of φ between 0 and 1; see ``count_min_size``.
        certain_below: The value below which a key must not be reported.
        max_item: α, the largest value of a single item.
        max_lost_items: L, in items.

    Example:
        >>> choice = heavy_hitters(threshold=10e6, epsilon=0.5, certain_below=3.4e6,
        ...                        max_item=1500, max_lost_items=1000)
        >>> choice.budget.max_state_error, choice.divergence
        (100000.0, 'max')
    """
    threshold = amount("threshold", threshold, unit="the values", zero=None, infinite=None)
    epsilon = _fraction("epsilon", epsilon)
    certain_below = amount(
        "certain_below", certain_below, unit="values", zero="none", infinite=None
    )
    sketch = (1 - epsilon) * threshold
    items = _of_items(max_item, max_lost_items)
    theta = _left("certain_below", sketch - certain_below - items)
    return Choice(
        budget=Budget(max_state_error=theta, max_lost_items=max_lost_items),
        divergence="max",
        because=(
            f"Without failures the sketch is sure of keys below"
            f" (1 - {_n(epsilon)}) x {_n(threshold)} = {_n(sketch)}.",
            f"You ask for {_n(certain_below)}, which leaves {_n(sketch - certain_below)}.",
            f"Lost items can take {_n(max_lost_items)} x {_n(max_item)} = {_n(items)} of that.",
            _result(
                sketch - certain_below,
                items,
                "max: the compensation raises each counter by no more (Theorem 2).",
            ),
        ),
    )


def certain_below(budget: Budget, *, threshold: float, epsilon: float, max_item: float) -> float:
    """The reverse of ``heavy_hitters``: (1 - ε)φ - Θ - α·L for a given budget; 0 if it is less.

    Example:
        >>> budget = Budget(max_state_error=1e5, max_lost_items=1000)
        >>> sure = certain_below(budget, threshold=10 * 2**20, epsilon=0.5, max_item=1500)
        >>> round(sure / 2**20, 1)
        3.5
    """
    sketch = (1 - _fraction("epsilon", epsilon)) * threshold
    return max(0.0, sketch - budget.state_error(max_item))


def ripple_join(
    *,
    samples: float,
    widening: float,
    max_matches: float = 1.0,
    max_lost_items: float = 0.0,
    max_unacked_items: float = 0.0,
) -> Choice:
    """Budget for aggregates over a ripple join (Theorem 3).

    Guarantee: the error bar z/√n becomes at most (1 + ``widening``) times as wide. A lost sample
    must count as not sampled: divide by the rate of samples *kept*. An estimate that
    divides by the planned rate is low by the lost part besides, which the theorem leaves out.

    Args:
        samples: n, sampled items in the window.
        widening: How much wider the error bar may become, a fraction above 0.
        max_matches: β, most items that one item joins with.
        max_lost_items: L, in items.
        max_unacked_items: Γ, in items.

    Example:
        >>> choice = ripple_join(samples=1e8, widening=0.01)
        >>> round(choice.budget.max_state_error)
        1970395
    """
    samples = amount("samples", samples, unit="items", zero=None, infinite=None)
    widening = amount("widening", widening, unit="parts of the error bar", zero=None, infinite=None)
    may_go = samples * (1 - (1 + widening) ** -2)
    outputs = Budget(
        max_lost_items=max_lost_items, max_unacked_items=max_unacked_items
    ).lost_outputs(max_matches)
    theta = _left("widening", may_go - outputs)
    return Choice(
        budget=Budget(
            max_state_error=theta,
            max_lost_items=max_lost_items,
            max_unacked_items=max_unacked_items,
        ),
        divergence="count",
        because=(
            f"The error bar goes as 1/sqrt(n): {_n(widening)} wider leaves"
            f" {_n(samples)} / (1 + {_n(widening)})^2 samples, so {_n(may_go)} may be lost.",
            f"Lost items can take {_n(max_unacked_items)} +"
            f" {_n(max_lost_items)} x {_n(max_matches)} = {_n(outputs)} of them.",
            _result(may_go, outputs, "count: each unit is one sample (Theorem 3)."),
        ),
    )


def join_widening(budget: Budget, *, samples: float, max_matches: float) -> float:
    """The reverse of ``ripple_join``: how much wider the error bar gets, as a fraction.

    Example:
        >>> budget = Budget(max_state_error=1e5, max_lost_items=1e3, max_unacked_items=1e3)
        >>> round(1e4 / (1 + join_widening(budget, samples=1e8, max_matches=100)), 1)
        9989.9
    """
    left = samples - budget.max_state_error - budget.lost_outputs(max_matches)
    return math.sqrt(samples / left) - 1 if left > 0 else math.inf


def absolute_error(
    max_error: float,
    *,
    of: Literal["total", "key"],
    max_item: float = 0.0,
    max_lost_items: float = 0.0,
) -> Choice:
    """Budget for sums and counts by key that may be wrong by a fixed amount.

    Args:
        max_error: Most error, in units of the aggregate.
        of: Whether that is for the "total" over all keys, or for each "key".
        max_item: α, the largest (absolute) value of a single item; 1 for counts.
        max_lost_items: L, in items.

    Example:
        >>> absolute_error(50, of="key").divergence
        'max'
    """
    max_error = amount("max_error", max_error, unit="the aggregate", zero="exact", infinite=None)
    return _aggregate(
        max_error, f"be wrong by at most {_n(max_error)}.", of, max_item, max_lost_items
    )


def relative_error(
    fraction: float,
    *,
    at_least: float,
    of: Literal["total", "key"],
    max_item: float = 0.0,
    max_lost_items: float = 0.0,
) -> Choice:
    """Budget for sums and counts by key that may be wrong by a fraction of their true value.

    Args:
        fraction: Most error as a fraction of the true value, above 0.
        at_least: The true value, in units of the aggregate, from which this must hold; a smaller
            one may be wrong by ``fraction`` x ``at_least``.
        of: Whether that is for the "total" over all keys, or for each "key".
        max_item: α, the largest (absolute) value of a single item; 1 for counts.
        max_lost_items: L, in items.

    Example:
        >>> relative_error(0.001, at_least=1e9, of="total").budget.max_state_error
        1000000.0
    """
    fraction = amount("fraction", fraction, unit="parts of the value", zero=None, infinite=None)
    at_least = amount("at_least", at_least, unit="the aggregate", zero=None, infinite=None)
    wish = (
        f"be wrong by at most {_n(fraction)} of its value where that is at least {_n(at_least)}:"
        f" by {_n(fraction * at_least)}."
    )
    return _aggregate(fraction * at_least, wish, of, max_item, max_lost_items)


def logistic_regression(
    max_distance: float, *, max_step: float = 0.0, max_lost_items: float = 0.0
) -> Choice:
    """Budget for an online model by its distance from the model without failures (§4, appendix B).

    Guarantee: all losses of a model together move its parameters by at most ``max_distance``; of
    several models that learn from each other (``LocalModel``, ``GlobalModel``) each by itself, as
    nothing bounds what one makes of another's error. If the loss
    function is convex and smooth and the learning rate at most 2/smoothness, later steps on the
    same items do not enlarge it. The average regret still converges, with k failures in T items,
    at the rate of Theorem 1, whose own formula has a term k/√T: so k must stay well below √T, which
    is more than the k ≪ T that the theorem asks for.

    Args:
        max_distance: Most Euclidean distance of the parameters.
        max_step: α, the largest step of a single item: learning rate x largest gradient.
        max_lost_items: L, in items.

    Example:
        >>> logistic_regression(0.5, max_step=0.01, max_lost_items=10).budget.max_state_error
        0.4
    """
    distance = amount("max_distance", max_distance, unit="distance", zero="exact", infinite=None)
    items = _of_items(max_step, max_lost_items)
    theta = _left("max_distance", distance - items)
    return Choice(
        budget=Budget(max_state_error=theta, max_lost_items=max_lost_items),
        divergence="l2",
        because=(
            f"The parameters may be moved by at most {_n(distance)}.",
            f"Lost items can take {_n(max_lost_items)} x {_n(max_step)} = {_n(items)} of that.",
            _result(distance, items, "l2: all losses add up to no more (triangle inequality)."),
        ),
    )


def _aggregate(
    allowed: float, wish: str, of: Literal["total", "key"], max_item: float, lost: float
) -> Choice:
    if of not in ("total", "key"):
        raise BadValueError(
            f"of={of!r} is not known.",
            why="An error is that of the total, or that of each key.",
            do="Give of='total' or of='key'.",
        )
    items = _of_items(max_item, lost)
    theta = _left("max_error", allowed - items)
    divergence: Divergence = "l1" if of == "total" else "max"
    reason = (
        "a sum is off by at most the sum of what its keys are off by."
        if of == "total"
        else "the largest difference of any key."
    )
    return Choice(
        budget=Budget(max_state_error=theta, max_lost_items=lost),
        divergence=divergence,
        because=(
            f"{'The total' if of == 'total' else 'Each key'} may {wish}",
            f"Lost items can take {_n(lost)} x {_n(max_item)} = {_n(items)} of that.",
            _result(allowed, items, f"{divergence}: {reason}"),
        ),
    )


def _result(allowed: float, taken: float, measure: str) -> str:
    left = _n(allowed - taken)
    return f"max_state_error = {_n(allowed)} - {_n(taken)} = {left}, measured as {measure}"


def _n(number: float) -> str:
    return f"{number:,.10g}"


def _of_items(each: float, lost: float) -> float:
    each = amount("the largest effect of an item", each, unit="state", zero="none", infinite=None)
    return Budget(max_lost_items=lost).state_error(each)


def _fraction(name: str, value: float) -> float:
    checked = amount(name, value, unit="parts of one", zero=None, infinite=None)
    if checked >= 1:
        raise BadValueError(
            f"{name}={checked:g} is not a fraction.",
            why="It is a part of a whole.",
            do="Give a number between 0 and 1.",
        )
    return checked


def _left(name: str, theta: float) -> float:
    if theta < 0:
        raise BadValueError(
            f"{name} cannot be met: max_state_error would have to be {theta:g}.",
            why="Lost items, or the algorithm itself, already take more than you allow.",
            do=f"Ask for less in {name}, or allow fewer lost items.",
        )
    return theta
