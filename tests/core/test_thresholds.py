"""Shares of the budget: strict sums, in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.budget import Budget
from tether.core.errors import BadValueError
from tether.core.placement import Placement
from tether.core.thresholds import (
    Thresholds,
    after_failures,
    initial_thresholds,
    outputs_of_item,
    whole_share,
)

from .adversary import chain

amounts = st.floats(0, 1e300, allow_nan=False)
fan_outs = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, 10.0]), st.floats(0, 1e6))


def test_the_papers_formula_for_one_operator() -> None:
    budget = Budget(max_state_error=1000, max_lost_items=80, max_unacked_items=16)
    first = initial_thresholds(budget, Placement(copies=2))
    assert first == Thresholds(theta=250.0, l=20.0, gamma=4.0)
    assert after_failures(first, 2) == Thresholds(theta=62.5, l=5.0, gamma=1.0)


@given(total=amounts, length=st.integers(2, 6), fan_out=st.sampled_from([1.0, 2.0, 3.0]))
def test_the_papers_pipeline_formula_overspends_and_ours_does_not(
    total: float, length: int, fan_out: float
) -> None:
    beta, theta = Fraction(fan_out), Fraction(total)
    # Each operator can lose twice its first threshold over endless failures.
    papers = sum(
        2 * (theta / (2 * beta ** (length - i))) * beta ** (length - i) for i in range(length)
    )
    assert papers == length * theta

    budget = Budget(max_state_error=total)
    # Ours, where an operator passes errors on as the paper has it, β-fold.
    spread = chain(length, fan_out)
    ours = sum(
        2
        * Fraction(initial_thresholds(budget, spread.placed(name, Placement(), shared=True)).theta)
        * beta ** (length - int(name))
        for name in spread.operators
    )
    assert ours <= theta
    assert float(ours) >= total * (1 - 1e-12) or total < 1e-300  # and nothing is wasted


@given(
    total=st.floats(0, allow_infinity=False, allow_nan=False),
    copies=st.integers(1, 50),
    length=st.integers(1, 5),
    fan_out=fan_outs,
    gain=fan_outs,
    failures=st.integers(0, 60),
)
def test_sum_over_slots_operators_and_failures_is_within_the_budget_exactly(
    *, total: float, copies: int, length: int, fan_out: float, gain: float, failures: int
) -> None:
    budget = Budget(max_state_error=total, max_lost_items=total, max_unacked_items=total)
    lost = {"theta": Fraction(0), "l": Fraction(0), "gamma": Fraction(0)}
    spread = chain(length, gain)
    for position, operator in enumerate(spread.operators, 1):
        place = Placement(copies=copies, position=position, length=length, fan_out=fan_out)
        place = spread.placed(operator, place, shared=True)
        # What an operator gets from those before it, it enlarges; then it adds its own.
        lost["theta"] *= Fraction(gain)
        first = initial_thresholds(budget, place)
        for k in range(failures):
            now = after_failures(first, k)
            lost["theta"] += copies * Fraction(now.theta)
            for name in ("l", "gamma"):
                lost[name] += copies * Fraction(getattr(now, name)) * outputs_of_item(place)
        assert lost["theta"] <= Fraction(total)  # in every state, not in the last one only
    assert all(value <= Fraction(total) for value in lost.values())


def test_infinite_stays_infinite_and_zero_stays_zero() -> None:
    place = Placement(
        copies=7, position=1, length=900, fan_out=1e6, sharers=900, amplification=math.inf
    )
    never = initial_thresholds(
        Budget(max_state_error=math.inf, max_lost_items=math.inf, max_unacked_items=math.inf),
        place,
    )
    assert after_failures(never, 5000) == Thresholds(theta=math.inf, l=math.inf, gamma=math.inf)
    assert initial_thresholds(Budget(), place) == Thresholds(theta=0.0, l=0.0, gamma=0.0)
    # A weight beyond any float makes a finite share nought, not NaN.
    assert initial_thresholds(Budget(max_state_error=1e308), place).theta == 0.0


@given(smallest=st.integers(1, 9), times=st.integers(0, 4))
def test_the_smallest_floats_are_not_rounded_up(smallest: int, times: int) -> None:
    value = smallest * math.ulp(0.0)
    halved = after_failures(Thresholds(theta=value, l=0, gamma=0), times).theta
    assert Fraction(halved) * 2**times <= Fraction(value)


def test_copies_without_common_keys_need_not_share_a_largest_error() -> None:
    budget = Budget(max_state_error=100, max_lost_items=100)
    apart = Placement(copies=10, errors_of_copies="max")
    assert whole_share(budget, apart) == Thresholds(theta=100.0, l=10.0, gamma=0.0)


def test_item_thresholds_are_whole() -> None:
    budget = Budget(max_lost_items=7, max_unacked_items=1)
    assert initial_thresholds(budget, Placement(copies=2)) == Thresholds(
        theta=0.0, l=1.0, gamma=0.0
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"copies": 0},
        {"copies": 1.5},
        {"position": 0},
        {"position": 3, "length": 2},
        {"fan_out": -1.0},
        {"fan_out": math.nan},
        {"fan_out": math.inf},
        {"sharers": 0},
        {"amplification": 0.5},
        {"amplification": math.nan},
    ],
)
def test_impossible_placements_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BadValueError):
        Placement(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 0.5])
def test_failures_are_counted(bad: float) -> None:
    with pytest.raises(BadValueError):
        after_failures(Thresholds(theta=1, l=1, gamma=1), bad)  # type: ignore[arg-type]


def test_a_lost_item_counts_for_all_outputs_that_it_would_have_caused() -> None:
    first = Placement(position=1, length=3, fan_out=10.0)
    assert [outputs_of_item(first), outputs_of_item(Placement(position=3, length=3))] == [100, 1]
    shares = [
        initial_thresholds(Budget(max_lost_items=6000), Placement(position=i, length=3, fan_out=10))
        for i in (1, 2, 3)
    ]
    assert [share.l for share in shares] == [10, 100, 1000]
