"""Accuracies and the budgets that give them, with the paper's own numbers."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.budget import Budget
from tether.core.errors import BadValueError
from tether.policies.accuracy import (
    Choice,
    absolute_error,
    certain_below,
    count_min_size,
    heavy_hitters,
    join_widening,
    logistic_regression,
    relative_error,
    ripple_join,
)

MB, GB = 2**20, 2**30


def test_the_papers_example_of_heavy_hitters() -> None:
    # Appendix A.1: φ = 10 MB, ε = 1/2, α = 1,500, L = 10^3, Θ = 10^5: keys below 3.5 MB are safe.
    budget = Budget(max_state_error=1e5, max_lost_items=1e3)
    safe = certain_below(budget, threshold=10 * MB, epsilon=0.5, max_item=1500)
    assert safe == 5 * MB - 1.5e6 - 1e5
    assert round(safe / MB, 1) == 3.5
    choice = heavy_hitters(
        threshold=10 * MB, epsilon=0.5, certain_below=safe, max_item=1500, max_lost_items=1e3
    )
    assert choice.budget == budget
    assert choice.divergence == "max"


def test_a_sketch_needs_twice_the_width_of_the_papers_lemma() -> None:
    # The paper's example has 4 rows of 8,192; Markov's inequality wants 16,384 for δ = 1/16.
    assert count_min_size(total=40 * GB, threshold=10 * MB, epsilon=0.5, delta=1 / 16) == (4, 16384)
    # A stream that shows it: w keys of εφ each, so that U = w·εφ, the paper's width. A further key
    # shares its counter with one of them, and is off by εφ, more often than every second time.
    width = 8192
    assert 1 - (1 - 1 / width) ** width > 0.63
    assert 1 - (1 - 1 / (2 * width)) ** width < 0.5


def test_the_papers_example_of_ripple_join() -> None:
    # Appendix A.2: Θ = 10^5, L = Γ = 10^3, β = 100, n = 10^8: z/10,000 becomes z/9,989.
    budget = Budget(max_state_error=1e5, max_lost_items=1e3, max_unacked_items=1e3)
    assert budget.max_state_error + budget.lost_outputs(100) == 201_000
    widening = join_widening(budget, samples=1e8, max_matches=100)
    assert math.floor(10_000 / (1 + widening)) == 9_989
    choice = ripple_join(
        samples=1e8,
        widening=widening,
        max_matches=100,
        max_lost_items=1e3,
        max_unacked_items=1e3,
    )
    assert choice.budget.max_state_error == pytest.approx(1e5, rel=1e-6)
    assert choice.divergence == "count"


def test_more_lost_than_sampled_leaves_no_error_bar() -> None:
    assert join_widening(Budget(max_state_error=10), samples=10, max_matches=1) == math.inf


@given(
    allowed=st.floats(0, 1e9),
    each=st.floats(0, 100),
    lost=st.integers(0, 1000),
    of=st.sampled_from(["total", "key"]),
)
def test_aggregates_use_all_that_is_allowed_and_no_more(
    allowed: float, each: float, lost: int, of: str
) -> None:
    if allowed < each * lost:
        with pytest.raises(BadValueError, match="cannot be met"):
            absolute_error(allowed, of=of, max_item=each, max_lost_items=lost)
        return
    choice = absolute_error(allowed, of=of, max_item=each, max_lost_items=lost)
    assert choice.budget.state_error(each) == pytest.approx(allowed)
    assert choice.divergence == {"total": "l1", "key": "max"}[of]
    assert msgspec.json.decode(msgspec.json.encode(choice), type=Choice) == choice


def test_relative_errors_hold_from_a_stated_value_on() -> None:
    choice = relative_error(0.01, at_least=5000, of="key", max_item=1, max_lost_items=20)
    assert choice.budget == Budget(max_state_error=30, max_lost_items=20)
    assert "5,000" in choice.explain()


def test_a_models_distance() -> None:
    choice = logistic_regression(0.5, max_step=0.01, max_lost_items=20)
    assert choice.budget.max_state_error == pytest.approx(0.3)
    assert choice.divergence == "l2"


def test_the_explanation_ends_with_the_number_to_use() -> None:
    choice = ripple_join(samples=1e8, widening=0.01)
    lines = choice.explain().splitlines()
    assert len(lines) == len(choice.because) == 3
    assert f"= {choice.budget.max_state_error:,.10g}, measured as count" in lines[-1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: heavy_hitters(threshold=10, epsilon=0.5, certain_below=6),
        lambda: heavy_hitters(threshold=10, epsilon=1.5, certain_below=1),
        lambda: heavy_hitters(threshold=0, epsilon=0.5, certain_below=0),
        lambda: heavy_hitters(threshold=9, epsilon=0.5, certain_below=1, max_lost_items=-1),
        lambda: count_min_size(total=1, threshold=1, epsilon=0.5, delta=0),
        lambda: ripple_join(samples=100, widening=0),
        lambda: ripple_join(samples=100, widening=0.1, max_unacked_items=50),
        lambda: absolute_error(-1, of="total"),
        lambda: absolute_error(math.nan, of="total"),
        lambda: absolute_error(1, of="both"),
        lambda: absolute_error(1, of="key", max_item=-1, max_lost_items=1),
        lambda: absolute_error(1, of="key", max_item=1, max_lost_items=math.inf),
        lambda: relative_error(0.1, at_least=0, of="key"),
        lambda: logistic_regression(0.1, max_step=1, max_lost_items=1),
    ],
)
def test_what_cannot_be_had_is_refused(ask: object) -> None:
    with pytest.raises(BadValueError) as caught:
        ask()  # type: ignore[operator]
    assert caught.value.why
    assert caught.value.do
