"""The bound again and again, for many slots: what losses have cost is summed once, the rest as arrays.

``bound_of_query`` reckons with fractions, and takes a tenth of a second for a thousand slots: too long
for every epoch. Most epochs lose nothing; then only what is at risk changes, and the sums over it are
made here from rounded numbers, each of them rounded up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.accounts import Account, loss_at_most
from tether.core.bound import bound_of_query
from tether.core.error_sums import unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.core.amplification import Amplification
    from tether.core.bound import Bound
    from tether.core.budget import Budget

SLACK = 1e-9
"""Larger than all rounding errors together, for any number of slots that fits into memory."""


SMALL = 32
"""Slots for which the exact sums are quick enough."""


class Sums(NamedTuple):
    """The figures of a bound that a page shows; see :class:`tether.core.bound.Bound`."""

    promised: float
    spent: float
    at_risk: float
    worst_now: float
    left: float
    ceiling: float


class QuickBound:
    """Bounds of one query, epoch after epoch.

    Guarantee: ``at_risk`` and ``worst_now`` are never below those of ``bound_of_query``, and above
    them by no more than a billionth; the others are the same. Losses of windows that have passed count
    in full until ``bound_of_query`` is asked again: looser, never false.

    Args:
        amplification: How errors spread between the operators.
        shared: The one budget, where all operators share it.
    """

    def __init__(self, amplification: Amplification | None, shared: Budget | None) -> None:
        self._amplification, self._shared = amplification, shared
        self._known: object = None
        self._exact: Bound | None = None
        self._paid: list[np.ndarray] = []

    def sums(self, accounts: Sequence[Account], losses: object) -> Sums:
        """The bound now.

        Args:
            accounts: The books of each operator, upstream ones first.
            losses: Changes whenever a loss is added or changed, or a slot's share of the budget is;
                all else is worked out again only then.
        """
        small = sum(len(account.facts) for account in accounts) <= SMALL
        told = self._exact
        if small or losses != self._known or told is None:
            told = self._begin(accounts)
            self._known = losses
            at_risk, worst = told.at_risk, told.worst_now
        else:
            at_risk, worst = self._at_risk(accounts)
        return Sums(told.promised, told.spent, at_risk, worst, told.left, told.ceiling)

    def _begin(self, accounts: Sequence[Account]) -> Bound:
        self._exact = bound_of_query(accounts, self._amplification, shared=self._shared)
        paid = {(one.operator, one.slot): one.spent for one in self._exact.slots}
        self._paid = [
            np.array([paid[fact.operator, fact.slot] for fact in account.facts])
            for account in accounts
        ]
        return self._exact

    def _at_risk(self, accounts: Sequence[Account]) -> tuple[float, float]:
        """What every operator's state would be wrong by if all slots died; of them, the largest."""
        parts = [
            self._of(account, paid) for account, paid in zip(accounts, self._paid, strict=True)
        ]
        if self._amplification is None and len(accounts) > 1:
            return math.inf, math.inf
        best_risk = best_worst = 0.0
        for target in accounts:
            risk = worst = 0.0
            for source, (one, both) in zip(accounts, parts, strict=True):
                factor = self._factor(source.operator, target.operator)
                if any(unseen(source, factor)):
                    return math.inf, math.inf
                if factor:
                    risk += _times(factor, one)
                    worst += _times(factor, both)
            best_risk, best_worst = max(best_risk, risk), max(best_worst, worst)
        return _up(best_risk), _up(best_worst)

    def _factor(self, source: str, target: str) -> float:
        spread = self._amplification
        if spread is None:
            return 1.0
        return float(spread.factor(source, target)) if source in spread.losing else 0.0

    def _of(self, account: Account, paid: np.ndarray) -> tuple[float, float]:
        """What is at risk in one operator's own slots, alone and with what they have lost."""
        if not account.facts:
            return 0.0, 0.0
        risk = np.array([loss_at_most(fact.theta, fact.divergence) for fact in account.facts])
        apart = account.facts[0].placement.errors_of_copies == "max"
        total = np.max if apart else np.sum
        return float(total(risk)), float(total(risk + paid))


def _times(factor: float, amount: float) -> float:
    return 0.0 if not amount else factor * amount


def _up(amount: float) -> float:
    return amount if not amount or math.isinf(amount) else amount * (1 + SLACK)
