"""Estimates of a join from a sample of both sides, and how sure they are.

Per key let a and b be the numbers of rows of the left and right side, and x the sum of the left
rows' values. The join's COUNT is Σ ab and its SUM is Σ xb. Rows are kept with probability p, each on
its own; A, B and X are the sample's a, b and x. As A and B are independent,

    Var(AB/p²) = (αa + a²)(αb + b²) - a²b²,  with α = (1-p)/p,

and likewise for SUM and for the covariance of both, with Σv² and Σv in the place of a's own variance.
Every term has an unbiased estimate from the sample, for example (B² - (1-p)B)/p² for b².
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MOMENTS = (
    "pairs",
    "pair_sum",
    "var_count",
    "var_sum",
    "covariance",
    "sampled_left",
    "sampled_right",
    "lost",
    "left_out",
)
"""Sums over keys, and so over slots too."""


def moments(
    left: NDArray[Any],
    right: NDArray[Any],
    total: NDArray[Any],
    squares: NDArray[Any],
    *,
    rate: float,
) -> dict[str, float]:
    """The sums over all keys that estimates are made of.

    Args:
        left: Sampled left rows per key.
        right: Sampled right rows per key.
        total: Sum of the sampled left rows' values per key.
        squares: Sum of their squares per key.
        rate: p.

    Example:
        >>> exact = moments(np.array([2]), np.array([3]), np.array([5.0]), np.array([13.0]), rate=1.0)
        >>> exact["pairs"], exact["pair_sum"], exact["var_count"]
        (6.0, 15.0, 0.0)
    """
    both = np.flatnonzero((left > 0) & (right > 0))
    a, b, x, xx = (part[both].astype(np.float64) for part in (left, right, total, squares))

    def covariance(u: NDArray[Any], w: NDArray[Any], diagonal: NDArray[Any]) -> float:
        alpha, rest = (1 - rate) / rate, 1 - rate
        own = diagonal / rate
        product = (u * w - rest * diagonal) / rate**2
        b1, b2 = b / rate, (b * b - rest * b) / rate**2
        return float((alpha * alpha * own * b1 + alpha * own * b2 + alpha * product * b1).sum())

    return {
        "pairs": float(a @ b),
        "pair_sum": float(x @ b),
        "var_count": covariance(a, a, a),
        "var_sum": covariance(x, x, xx),
        "covariance": covariance(x, a, x),
        "sampled_left": float(left.sum()),
        "sampled_right": float(right.sum()),
    }


class Estimates:
    """COUNT, SUM and AVG with intervals, from sums over all keys.

    Args:
        sums: ``MOMENTS`` by name.
        rate: p.
        confidence: Probability with which an interval is to hold the truth.
    """

    SCHEMA = (
        "count double, count_low double, count_high double, sum double, sum_low double, "
        "sum_high double, avg double, avg_low double, avg_high double, sampled bigint, "
        "lost double, left_out bigint"
    )

    def __init__(self, sums: Mapping[str, float], rate: float, confidence: float) -> None:
        self._sums, self._scale, self._confidence = sums, 1 / rate**2, confidence
        self._z = NormalDist().inv_cdf((1 + confidence) / 2)
        self.sampled = sums["sampled_left"] + sums["sampled_right"]
        left, lost = self.sampled, sums["lost"]
        # The part of all pairs that are still there, if as many rows as possible were lost.
        self._kept = (
            (left / (left + lost)) ** 2 if lost and left + lost < math.inf else float(not lost)
        )

    def row(self) -> dict[str, list[Any]]:
        """The row that ``JoinEstimate`` emits."""
        count, total = self._sums["pairs"] * self._scale, self._sums["pair_sum"] * self._scale
        values: dict[str, Any] = {"count": count, "sum": total, "avg": None}
        values["count_low"], values["count_high"] = self._count_interval(count)
        values["sum_low"], values["sum_high"] = self._sum_interval(total)
        values["avg_low"] = values["avg_high"] = None
        if count:
            values["avg"], half = self._average(count, total)
            values["avg_low"], values["avg_high"] = values["avg"] - half, values["avg"] + half
        values["sampled"] = int(self.sampled)
        values["lost"], values["left_out"] = self._sums["lost"], int(self._sums["left_out"])
        return {name: [value] for name, value in values.items()}

    def _half(self, variance: float) -> float:
        return self._z * math.sqrt(max(variance, 0.0))

    def _risen(self, value: float) -> float:
        return value / self._kept if self._kept else math.copysign(math.inf, value)

    def _count_interval(self, count: float) -> tuple[float, float]:
        half = self._half(self._sums["var_count"])
        high = count + half
        if not count and self._scale > 1 and min(self._sides()) > 0:
            # No pair was drawn although both sides have rows: there may be a few all the same.
            high = -math.log(1 - self._confidence) * self._scale
        return max(count - half, 0.0), self._risen(high) if high else 0.0

    def _sides(self) -> tuple[float, float]:
        return self._sums["sampled_left"], self._sums["sampled_right"]

    def _sum_interval(self, total: float) -> tuple[float, float]:
        half = self._half(self._sums["var_sum"])
        low, high = total - half, total + half
        # What is lost moves a sum away from 0, in the direction of the values' sign.
        return (self._risen(low) if low < 0 else low), (self._risen(high) if high > 0 else high)

    def _average(self, count: float, total: float) -> tuple[float, float]:
        """A ratio, with the delta method; losses reduce both parts in the same way."""
        average = total / count
        sums = self._sums
        variance = sums["var_sum"] - 2 * average * sums["covariance"]
        variance = (variance + average**2 * sums["var_count"]) / count**2
        widened = 1 / math.sqrt(self._kept) if self._kept else math.inf
        half = self._half(variance)
        return average, half * widened if half else 0.0
