"""Sliding and decaying windows (§3.5.2) with real states: one entry for each second of the stream."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from tether.core.windows import Decaying, Sliding
from tether.policies.approximate import Approximate

from .survivor import Survivor

SECONDS = 40
amounts = st.lists(st.integers(-9, 9), min_size=SECONDS, max_size=SECONDS)
failures = st.sets(st.integers(0, SECONDS - 1), max_size=20)


def play(survivor: Survivor, amounts: list[int], failures: set[int]):
    """Give, second by second, how far each entry is off."""
    ideal = np.zeros(SECONDS)
    for second, amount in enumerate(amounts):
        survivor.apply(lambda vector, s=second, a=amount: vector.add([s], a), time=second)
        ideal[second] += amount
        if second in failures:
            survivor.lose(time=second)
        yield second, np.abs(survivor.vector.values - ideal)


@settings(max_examples=40)
@given(amounts=amounts, failures=failures, length=st.integers(1, 12), total=st.integers(0, 60))
def test_in_any_sliding_window_the_error_is_within_the_budget(
    amounts: list[int], failures: set[int], length: int, total: int
) -> None:
    survivor = Survivor(Approximate(total, window=Sliding(length)), SECONDS, "int64", "l1")
    for second, off in play(survivor, amounts, failures):
        assert off[max(0, second - length + 1) : second + 1].sum() <= total
        # Each failure gives its halving back when it has left the window, neither before nor later.
        inside = sum(second - length < at <= second for at in failures)
        assert survivor.theta == total / 2 / 2**inside


@settings(max_examples=40)
@given(amounts=amounts, failures=failures, length=st.integers(1, 12), total=st.integers(0, 60))
def test_decaying_errors_fade_and_never_pile_up_above_the_stated_sum(
    amounts: list[int], failures: set[int], length: int, total: int
) -> None:
    window = Decaying(length)
    survivor = Survivor(Approximate(total, window=window), SECONDS, "int64", "l1")
    ordered = sorted(failures)
    gap = min((b - a for a, b in pairwise(ordered)), default=SECONDS)
    for second, off in play(survivor, amounts, failures):
        weights = np.array([window.remaining(at, second) for at in range(SECONDS)])
        left = (weights * off)[: second + 1].sum()
        faded = sum(total * window.remaining(at, second) for at in ordered if at <= second)
        assert left <= faded * (1 + 1e-12)
        assert left <= window.piled_up(total, gap) * (1 + 1e-12)
        assert survivor.theta == total  # no halving


def test_without_any_window_the_halvings_stay() -> None:
    survivor = Survivor(Approximate(64), SECONDS, "int64", "l1")
    for _ in play(survivor, [3] * SECONDS, {3, 5, 9}):
        pass
    assert survivor.theta == 64 / 2**4
