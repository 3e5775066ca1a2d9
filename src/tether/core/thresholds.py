"""Thresholds: a slot's share of the budget, and how it shrinks with each failure.

AF-Stream 2019 §3.5.2–3.5.3. A slot that loses its state loses at most its θ. To keep the sum over
all slots, operators and failures within Θ, three divisions are made:

1. **Failures.** Start with half of the slot's share, halve after each recovery:
   1/2 + 1/4 + 1/8 + … ≤ 1, however many failures there are.
2. **Copies.** n copies share alike: Θ/n each, since their errors add up.
3. **Pipeline.** An error of one operator shows in the states after it, w-fold at most (see
   :mod:`tether.core.amplification`), and meets the errors of others there. If m operators' errors can
   meet in one state, each gets the m-th part, divided by its w.

So θ = Θ / (2 · n · m · w) / 2^k. Items are another matter: a lost item at the i-th of m operators is up
to β^(m-i) lost outputs at the end, so l = L / (2 · n · m · β^(m-i)) / 2^k, and γ alike.

**Where this is not the paper.** The paper divides Θ by β^(m-i) too: as if an error of the state grew
like lost items, by at most β for each operator. It need not: a sum over a million totals, each wrong
by 1, is wrong by a million at β = 1. What is needed is how much an operator amplifies an *error*, and
where that is not known there is no promise for the end of the pipeline, only one for each operator.
And the paper says that the sum over all failures and workers is again Θ. For m > 1 it is not: every
operator alone can use up Σ_k β^(m-i) · Θ/(2·β^(m-i)) / 2^k = Θ, hence all m of them m·Θ. The formula
holds only if a single operator of the pipeline ever fails. Tether divides by m too, so the promise is
kept when all of them fail.

Two more things are made strict. A β below 1 counts as 1: a filter that drops most items must not
entitle the operator before it to an error above Θ in its own state. And shares are rounded down, because
a sum of floats that were rounded up could end above Θ. As w is at least 1 and the largest over all
states, every operator's *own* state is within Θ too.

In a pipeline, lost output items of one operator are lost input of the next, which the paper's
Θ + L·α leaves out: there the last state's error is at most Θ + (L + Γ)·α, where α is the most that an
item changes any state that it leads to. With one operator it is Θ + L·α as stated.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tether.core.checks import count
from tether.core.ids import Failures
from tether.core.numbers import rounded_down

if TYPE_CHECKING:
    from tether.core.budget import Budget
    from tether.core.numbers import Exact
    from tether.core.placement import Placement


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


def outputs_of_item(placement: Placement) -> Fraction:
    """β^(m-i): most outputs at the end of the pipeline that an item of this operator can cause.

    Example:
        >>> from tether.core.placement import Placement
        >>> int(outputs_of_item(Placement(position=1, length=3, fan_out=10.0)))
        100
    """
    factor = max(Fraction(1), Fraction(placement.fan_out))
    weight: Fraction = factor ** (placement.length - placement.position)
    return weight


def operator_share(budget: Budget, placement: Placement) -> Exact:
    """What all losses of an operator together may cost, in its own state: Θ / (m · w).

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.placement import Placement
        >>> operator_share(Budget(max_state_error=900), Placement(sharers=3, amplification=3.0))
        Fraction(100, 1)
    """
    if math.isinf(budget.max_state_error):
        return math.inf
    if math.isinf(placement.amplification):
        return Fraction(0)
    parts = placement.sharers * Fraction(placement.amplification)
    return Fraction(budget.max_state_error) / parts


@lru_cache(maxsize=1024)
def whole_share(budget: Budget, placement: Placement) -> Thresholds:
    """A slot's whole share of the budget, for any number of failures: Θ / (n · m · w).

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.placement import Placement
        >>> whole_share(Budget(max_state_error=1000), Placement(copies=4)).theta
        250.0
    """
    of_operator = operator_share(budget, placement)
    apart = placement.errors_of_copies == "max"
    items = placement.length * outputs_of_item(placement) * placement.copies
    return Thresholds(
        theta=rounded_down(of_operator if apart else of_operator / placement.copies),
        l=_whole(_divided(budget.max_lost_items, items)),
        gamma=_whole(_divided(budget.max_unacked_items, items)),
    )


def initial_thresholds(budget: Budget, placement: Placement) -> Thresholds:
    """Thresholds of a slot that has never failed: half of its share.

    Guarantee: over all slots, operators and failures, what is lost stays within the budget.

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.placement import Placement
        >>> initial_thresholds(Budget(max_state_error=1000), Placement(copies=5)).theta
        100.0
        >>> first_of_two = Placement(sharers=2, amplification=10.0)
        >>> initial_thresholds(Budget(max_state_error=1000), first_of_two).theta
        25.0
    """
    return after_failures(whole_share(budget, placement), Failures(1))


def after_failures(initial: Thresholds, failures: Failures) -> Thresholds:
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
    return total if math.isinf(total) else rounded_down(Fraction(total) / by)


def _halved(value: float, times: int) -> float:
    halved = math.ldexp(value, -times)
    # Halving floats is exact but for the very smallest, which may have been rounded up.
    if math.isfinite(halved) and math.ldexp(halved, times) > value:
        return math.nextafter(halved, 0.0)
    return halved


def _whole(items: float) -> float:
    return items if math.isinf(items) else float(math.floor(items))
