"""Budgets refuse what cannot be a budget, and say so."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.budget import Budget
from tether.core.checks import count
from tether.core.errors import BadValueError

FIELDS = ["max_state_error", "max_lost_items", "max_unacked_items"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("bad", [-1, -0.001, -math.inf, math.nan, "10", None, True])
def test_bad_amounts_are_refused_with_what_why_and_do(field: str, bad: object) -> None:
    with pytest.raises(BadValueError) as caught:
        Budget(**{field: bad})  # type: ignore[arg-type]
    assert field in caught.value.what
    assert caught.value.why
    assert "0 (exact) or more" in caught.value.do


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("good", [0, 0.5, 10**6, math.inf, Fraction(1, 2)])
def test_zero_and_infinity_are_legal(field: str, good: float) -> None:
    assert getattr(Budget(**{field: good}), field) == float(good)


def test_whole_and_real_numbers_make_one_budget() -> None:
    assert repr(Budget(max_state_error=1000)) == repr(Budget(max_state_error=1000.0))


def test_a_budget_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Budget().max_state_error = 3  # type: ignore[misc]


@given(st.tuples(*[st.floats(0, allow_nan=False)] * 3))
def test_round_trip(parts: tuple[float, float, float]) -> None:
    budget = Budget(**dict(zip(FIELDS, parts, strict=True)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(budget), type=Budget) == budget


def test_a_bad_stored_budget_is_refused() -> None:
    stored = msgspec.msgpack.encode({"max_state_error": -5.0})
    with pytest.raises(msgspec.ValidationError, match="negative"):
        msgspec.msgpack.decode(stored, type=Budget)


def test_items_without_effect_cost_nothing_however_many() -> None:
    budget = Budget(max_state_error=5, max_lost_items=math.inf)
    assert budget.state_error(alpha=0) == 5
    assert budget.state_error(alpha=1) == math.inf
    assert Budget(max_unacked_items=7).lost_outputs(beta=math.inf) == 7


@pytest.mark.parametrize("bad", [0, 1.5, -1, math.inf, math.nan, "2"])
def test_counts_are_whole(bad: object) -> None:
    with pytest.raises(BadValueError, match="copies"):
        count("copies", bad, unit="slots")
