"""Thresholds: a slot's share of the budget, and how it shrinks with each failure.

AF-Stream 2019 §3.5.2–3.5.3. A slot that loses its state loses at most its θ. To keep the sum over
all slots, operators and failures within Θ, three divisions are made:

1. **Failures.** Start with half of the slot's share, halve after each recovery:
   1/2 + 1/4 + 1/8 + … ≤ 1, however many failures there are.
2. **Copies.** n copies share alike: Θ/n each, since their errors add up.
3. **Pipeline.** An error of the i-th of m operators grows up to β-fold in every operator after it,
   so it counts β^(m-i) times at the end: its share is divided by that weight, and by m.

So θ = Θ / (2 · n · m · β^(m-i)) / 2^k, and l and γ alike.

**Where this is not the paper.** The paper gives the i-th operator Θ/(2·β^(m-i)) and says that the
sum over all failures and workers is again Θ. For m > 1 it is not: every operator alone can use up
Σ_k β^(m-i) · Θ/(2·β^(m-i)) / 2^k = Θ, hence all m of them m·Θ. The formula holds only if a single
operator of the pipeline ever fails. Tether divides by m too, so the promise is kept when all of
them fail. If only some operators can lose anything, let ``length`` count those.

Two more things are made strict. A β below 1 counts as 1: a filter that drops most items must not
entitle the operator before it to an error above Θ in its own state. And a share is rounded down:
a sum of floats that each were rounded up could end above Θ. With β ≥ 1, every operator's *own*
state is within Θ too, since what operator j gets from itself and those before it is at most
Θ·(j/m)/β^(m-j).

In a pipeline, lost output items of one operator are lost input of the next, which the paper's
Θ + L·α leaves out: there the last state's error is at most Θ + (L + Γ)·α. With one operator it is
Θ + L·α as stated.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tether.core.checks import count

if TYPE_CHECKING:
    from tether.core.budget import Budget
    from tether.core.policy import Placement


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """θ, l and γ of one slot now: the most that a single failure of it can lose.

    Args:
        theta: Most divergence at a committed epoch, in units of the divergence.
        l: Most items neither processed nor backed up. Whole, or infinite.
        gamma: Most items sent and not acknowledged. Whole, or infinite.

    Example:
        >>> now = Thresholds(theta=250, l=2, gamma=0)
        >>> now.state_error(alpha=10)
        270
    """

    theta: float
    l: float  # noqa: E741 - the paper's letter
    gamma: float

    def state_error(self, alpha: float) -> float:
        """θ + l·α: the most state error that one failure now can bring (§3.5.1)."""
        return self.theta + (self.l * alpha if self.l and alpha else 0)

    def lost_outputs(self, beta: float) -> float:
        """γ + l·β: the most output items that one failure now can lose (§3.5.1)."""
        return self.gamma + (self.l * beta if self.l and beta else 0)


def amplification(placement: Placement) -> Fraction:
    """β^(m-i): how often an error of this operator counts at the end of the pipeline.

    Example:
        >>> from tether.core.policy import Placement
        >>> int(amplification(Placement(position=1, length=3, fan_out=10.0)))
        100
    """
    factor = max(Fraction(1), Fraction(placement.fan_out))
    weight: Fraction = factor ** (placement.length - placement.position)
    return weight


@lru_cache(maxsize=1024)
def whole_share(budget: Budget, placement: Placement) -> Thresholds:
    """A slot's whole share of the budget, for any number of failures: Θ / (n · m · β^(m-i)).

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.policy import Placement
        >>> whole_share(Budget(max_state_error=1000), Placement(copies=4)).theta
        250.0
    """
    for_stage = placement.length * amplification(placement)
    for_slot = for_stage * placement.copies
    return Thresholds(
        theta=_divided(
            budget.max_state_error,
            for_stage if placement.errors_of_copies == "max" else for_slot,
        ),
        l=_whole(_divided(budget.max_lost_items, for_slot)),
        gamma=_whole(_divided(budget.max_unacked_items, for_slot)),
    )


def initial_thresholds(budget: Budget, placement: Placement) -> Thresholds:
    """Thresholds of a slot that has never failed: half of its share.

    Guarantee: over all slots, operators and failures, what is lost stays within the budget.

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.policy import Placement
        >>> initial_thresholds(Budget(max_state_error=1000), Placement(copies=5)).theta
        100.0
        >>> second_of_two = Placement(position=2, length=2, fan_out=10.0)
        >>> initial_thresholds(Budget(max_state_error=1000), second_of_two).theta
        250.0
    """
    return after_failures(whole_share(budget, placement), 1)


def after_failures(initial: Thresholds, failures: int) -> Thresholds:
    """Thresholds after ``failures`` recoveries: halved by each.

    Args:
        initial: What ``initial_thresholds`` gave.
        failures: k, recoveries of this slot so far (in the window, if there is one).

    Example:
        >>> after_failures(Thresholds(theta=100.0, l=9, gamma=1), 2)
        Thresholds(theta=25.0, l=2.0, gamma=0.0)
    """
    count("failures", failures, unit="failures", least=0)
    return Thresholds(
        theta=_halved(initial.theta, failures),
        l=_whole(_halved(initial.l, failures)),
        gamma=_whole(_halved(initial.gamma, failures)),
    )


def _divided(total: float, by: Fraction) -> float:
    if math.isinf(total):
        return total
    exact = Fraction(total) / by
    return _not_above(float(exact), exact)


def _halved(value: float, times: int) -> float:
    halved = math.ldexp(value, -times)
    # Halving floats is exact but for the very smallest, which may have been rounded up.
    if math.isfinite(halved) and math.ldexp(halved, times) > value:
        return math.nextafter(halved, 0.0)
    return halved


def _not_above(value: float, exact: Fraction) -> float:
    return math.nextafter(value, 0.0) if Fraction(value) > exact else value


def _whole(items: float) -> float:
    return items if math.isinf(items) else float(math.floor(items))
