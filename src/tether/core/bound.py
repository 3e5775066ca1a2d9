"""The bound: how wrong the answer can be, from facts about each slot.

Every loss of resident state is written down as a ``Loss`` with the most that it can have cost. The
sum of these is what the answer can be wrong by now; what the slots carry above their backups is
what it would be wrong by in addition if all of them died at this moment. Nothing here guesses:
where a fact is not known, the larger value is taken.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from tether.core.policy import Placement
from tether.core.thresholds import amplification

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tether.core.budget import Budget
    from tether.core.windows import Window


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One loss of a slot's resident state, and the most that it can have cost.

    Args:
        epoch: The epoch that the slot was about to run.
        at_most: Most divergence lost, in its units; see ``loss_at_most``.
        extra: Most divergence lost on top of that because a backup could not be read and an elder
            one had to serve. It widens the bound beyond the budget.
        items: Most items lost unprocessed.
        position: Where it was, in the window's unit; None counts in every window.

    Example:
        >>> Loss(epoch=7, at_most=20.0).extra
        0.0
    """

    epoch: int
    at_most: float
    extra: float = 0.0
    items: int = 0
    position: float | None = None


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one slot now.

    Args:
        operator: Name of the operator.
        slot: Number of the slot.
        divergence: As reported at the last committed epoch, in its units. None: not known.
        theta: θ at that epoch, in units of the divergence.
        failures: k, recoveries so far.
        losses: All that the slot has lost.
        pending_items: Items taken in, neither processed nor backed up.
        placement: Where the slot stands in the query.

    Example:
        >>> SlotFacts(operator="count", slot=0, divergence=5.0, theta=10.0).failures
        0
    """

    operator: str
    slot: int
    divergence: float | None
    theta: float
    failures: int = 0
    losses: tuple[Loss, ...] = ()
    pending_items: int = 0
    placement: Placement = Placement()


class SlotBound(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's part in the bound, in units of its own divergence.

    Example:
        >>> SlotBound(operator="count", slot=0, failures=0, spent=0.0, at_risk=5.0).at_risk
        5.0
    """

    operator: str
    slot: int
    failures: int
    spent: float
    """What its losses can have cost, ``extra`` included."""
    at_risk: float
    """What a loss of it now would add."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong the answer of a query can be.

    Guarantee, for a policy whose slots keep to their thresholds (a decaying window excepted, whose
    sum depends on how fast failures follow each other): 0 ≤ ``spent`` ≤ ``worst_now`` ≤
    ``ceiling``, and ``ceiling`` is the budget unless a backup was unreadable.

    Errors are in units of the divergence, counted at the end of the pipeline: an error of an
    earlier operator counts as often as it can grow on its way there.

    Example:
        >>> from tether.core.budget import Budget
        >>> one = SlotFacts(operator="count", slot=0, divergence=5.0, theta=25.0, failures=1,
        ...                 losses=(Loss(epoch=3, at_most=40.0),))
        >>> now = bound([one], budget=Budget(max_state_error=100))
        >>> now.spent, now.worst_now, now.left, now.ceiling
        (40.0, 45.0, 60.0, 100.0)
    """

    promised: float
    """Θ: what the policy was told to keep to."""
    spent: float
    """The most that the answer, as it stands, can be wrong by: what all losses can have cost."""
    at_risk: float
    """What would be lost in addition if every slot died at this moment."""
    worst_now: float
    """``spent`` + ``at_risk``: the most that the answer would then be wrong by."""
    left: float
    """Θ less what the budget has paid for so far; never below 0."""
    extra: float
    """How much unreadable backups have widened the bound; part of ``spent``, beyond Θ."""
    ceiling: float
    """Θ + ``extra``: the most that the answer can ever be wrong by, unless backups rot again."""
    items_lost: int
    """Most items lost unprocessed so far; each also costs up to α of state, β of output."""
    items_at_risk: int
    """Items that would be lost if every slot died at this moment."""
    slots: tuple[SlotBound, ...]
    """Each slot's part."""

    @property
    def holds(self) -> bool:
        """Whether even the loss of every slot now would keep the answer within ``ceiling``."""
        return self.worst_now <= self.ceiling

    def state_error(self, alpha: float) -> float:
        """``spent`` and what lost items add to it, α (units of the divergence) each."""
        return self.spent + (self.items_lost * alpha if self.items_lost else 0)


def loss_at_most(theta: float, last_divergence: float | None) -> float:
    """The most that losing a slot costs: θ, or the divergence last reported if that is less.

    The divergence is that of the last committed epoch; rows that came after it are read again. It
    is not known where the driver died too: then θ stands.

    Example:
        >>> loss_at_most(100.0, 30.0), loss_at_most(100.0, None)
        (30.0, 100.0)
    """
    if last_divergence is None or math.isnan(last_divergence):
        return theta
    return min(theta, last_divergence)


def bound(
    facts: Iterable[SlotFacts],
    *,
    budget: Budget,
    window: Window | None = None,
    now: float | None = None,
) -> Bound:
    """Sum up what the answer can be wrong by.

    Args:
        facts: One entry for each slot of each operator.
        budget: Of the policy: ``policy.budget``.
        window: Of the policy: losses that it has left do not count, faded ones count less.
        now: Position of the stream in the window's unit; without it every loss counts in full.

    Example:
        >>> from tether.core.no_tolerance import NoTolerance
        >>> gone = Loss(epoch=3, at_most=loss_at_most(float("inf"), None))
        >>> facts = SlotFacts(operator="count", slot=0, divergence=None, theta=float("inf"),
        ...                   failures=1, losses=(gone,))
        >>> bound([facts], budget=NoTolerance().budget).spent
        inf
    """
    known = sorted(facts, key=lambda fact: (fact.operator, fact.slot))

    # Each slot's errors once, as exact sums cost more than anything else here.
    paid = [_sum((one.at_most, _weight(one, window, now)) for one in f.losses) for f in known]
    extra = [_sum((one.extra, _weight(one, window, now)) for one in f.losses) for f in known]
    at_risk = [_sum([(loss_at_most(fact.theta, fact.divergence), 1)]) for fact in known]

    promised = _sum([(budget.max_state_error, 1)])
    within, widened = _total(known, paid), _total(known, extra)
    worst = _total(known, [lost + more for lost, more in zip(paid, at_risk, strict=True)])
    return Bound(
        promised=_rounded(promised),
        spent=_rounded(within + widened),
        at_risk=_rounded(_total(known, at_risk)),
        worst_now=_rounded(worst + widened),
        left=0.0 if within >= promised else _rounded(promised - within),
        extra=_rounded(widened),
        ceiling=_rounded(promised + widened),
        items_lost=sum(
            loss.items for fact in known for loss in fact.losses if _weight(loss, window, now)
        ),
        items_at_risk=sum(fact.pending_items for fact in known),
        slots=tuple(
            SlotBound(
                operator=fact.operator,
                slot=fact.slot,
                failures=fact.failures,
                spent=_rounded(lost + wider),
                at_risk=_rounded(risk),
            )
            for fact, lost, wider, risk in zip(known, paid, extra, at_risk, strict=True)
        ),
    )


# Sums are exact, and rounded once at the end: many roundings would drift above a bound that holds.
# The float is only ever infinity.
_Exact = Fraction | float


def _weight(loss: Loss, window: Window | None, now: float | None) -> float:
    if window is None or now is None or loss.position is None:
        return 1.0
    return window.remaining(loss.position, now)


def _total(facts: Sequence[SlotFacts], errors: Sequence[_Exact]) -> _Exact:
    """Error at the pipeline's end: of an operator's slots the sum or the largest, then the sum."""
    parts: list[tuple[_Exact, Fraction]] = []
    pairs = zip(facts, errors, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[0].operator):
        slots = list(group)
        place = slots[0][0].placement
        values = [error for _, error in slots]
        if place.errors_of_copies == "max":
            values = [max(values)]
        parts.append((_sum((value, 1) for value in values), amplification(place)))
    return _sum(parts)


def _sum(parts: Iterable[tuple[_Exact, float | Fraction]]) -> _Exact:
    exact = Fraction(0)
    for value, weight in parts:
        if not value or not weight:
            continue
        if value == math.inf:
            return math.inf
        exact += Fraction(value) if weight == 1 else Fraction(value) * Fraction(weight)
    return exact


def _rounded(exact: _Exact) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf
