"""The divergence is that of the definition, and never too small."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.model import check_divergence

from tether.core.errors import BadValueError
from tether.state import SlotState
from tether.state.divergence import sum_up
from tether.state.selection import worst_first
from tether.testing.oracle import distance

ANY = st.floats(allow_nan=False, allow_infinity=False, width=64)
SOME = st.floats(-1e9, 1e9)
BIG = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@settings(max_examples=80)
@given(
    steps=st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 6), SOME)), st.booleans())),
    weight=st.sampled_from([1.0, 0.1, 1e-300]),
)
def test_floats_are_never_under_reported(norm: str, steps: Any, weight: float) -> None:
    state = SlotState.heap()
    vector = state.vector("v", 7, divergence=norm, weights={"value": weight})
    durable = [0.0] * 7
    state.begin(0)
    for changes, backup in steps:
        for at, value in changes:
            vector.add([at], [value])
        if backup:
            export = vector.export(vector.divergence() / 2)
            for batch in export.batches:
                rows = batch.to_pydict()
                for at, value in zip(rows.get("index", range(7)), rows["value"], strict=True):
                    durable[at] = value
        live = {at: {"value": value} for at, value in enumerate(vector.values.tolist())}
        kept = {at: {"value": value} for at, value in enumerate(durable)}
        exact = distance(vector.spec, live, kept)
        assert isinstance(exact, Fraction)
        reported = vector.divergence(exact=True)
        assert Fraction(reported) ** (2 if norm == "l2" else 1) >= exact
        check_divergence(reported, exact, norm, whole=False)


@pytest.mark.parametrize("norm", ["l1", "max"])
@settings(max_examples=80)
@given(steps=st.lists(st.lists(st.tuples(st.integers(0, 4), BIG), min_size=1), max_size=6))
def test_any_integers(norm: str, steps: Any) -> None:
    """Differences of 64-bit integers need 64 bits without a sign, and their sums more."""
    state = SlotState.heap()
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"}, divergence=norm)
    live: dict[Any, Any] = {}
    durable: dict[Any, Any] = {}
    state.begin(0)
    for number, changes in enumerate(steps):
        keys, values = zip(*changes, strict=True)
        table.put([pa.array(keys)], n=pa.array(values, pa.int64()))
        live.update({key: {"n": value} for key, value in changes})
        exact = distance(table.spec, live, durable)
        reported = table.divergence(exact=True)
        assert Fraction(reported) >= exact
        assert reported <= float(exact) * (1 + 1e-12)
        if number % 2:
            table.export(reported / 3)
            durable = {key: {"n": _durable(table, key)} for key in live}


def _durable(table: Any, key: int) -> int:
    (row,) = table.get([[key]]).rows.tolist()
    return int(table._cells.sides(np.array([row]))[1][0, 0])


def test_small_integers_are_exact() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 10, dtype="int64")
    state.begin(0)
    for step in range(1000):
        vector.add([step % 10], [step - 500])
    assert vector.divergence(exact=True) == float(np.abs(vector.values).sum())


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("dtype", ["int64", "float64"])
@settings(max_examples=60)
@given(data=st.data())
def test_not_asked_exactly_it_is_a_bound_from_above(norm: str, dtype: str, data: Any) -> None:
    """Backing up by the bound is never late, however the two ways of measuring alternate."""
    state = SlotState.heap()
    vector = state.vector("v", 6, dtype=dtype, divergence=norm)
    durable = vector.values.copy()
    change = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), max_size=8)
    for epoch in range(4):
        state.begin(epoch)
        for changes in data.draw(st.lists(change, max_size=4)):
            if changes:
                rows, amounts = map(list, zip(*changes, strict=True))
                vector.add(rows, amounts)
        bound = vector.divergence()
        apart = np.abs(vector.values - durable).astype(float)
        order = {"l1": 1, "l2": 2, "max": math.inf}[norm]
        assert bound >= np.linalg.norm(apart, order) * (1 - 1e-12)
        if data.draw(st.booleans()):
            assert vector.divergence(exact=True) <= bound * (1 + 1e-12)
            assert vector.divergence(exact=True) == pytest.approx(np.linalg.norm(apart, order))
            assert vector.divergence() == vector.divergence(exact=True)
        ending = data.draw(st.sampled_from(["commit", "roll back", "back up"]))
        if ending == "roll back":
            state.rollback()
            continue
        if ending == "back up":
            for batch in vector.export(bound / 2).batches:
                part = batch.to_pydict()
                durable[part.get("index", slice(None))] = part["value"]
        state.commit(epoch)


def test_of_values_that_only_grow_the_bound_is_the_sum_of_differences_itself() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 4, dtype="int64")
    state.begin(0)
    for _ in range(5):
        vector.add([0, 1, 1, 3], [1, 2, 0, 7])
    assert vector.divergence() == 50.0


def test_a_bound_that_was_of_no_use_is_followed_by_precise_sums_until_the_next_backup() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 2, dtype="int64")
    state.begin(0)
    vector.put([0, 1], [100, 30])
    vector.put([1], [0])
    assert vector.divergence() == 160.0
    assert vector.divergence(exact=True) == 100.0
    for value in (50, 0):
        vector.put([1], [value])
        assert vector.divergence() == 100.0 + value
    vector.export(0.0)
    vector.put([1], [9])
    vector.put([1], [0])
    assert vector.divergence() == 18.0


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([math.inf, -math.inf, 1.0, 0.0]))))
def test_infinities_count_as_infinitely_far(changes: list[tuple[int, float]]) -> None:
    state = SlotState.heap()
    vector = state.vector("v", 3)
    state.begin(0)
    for at, value in changes:
        vector.put([at], [value])
        expected = math.fsum(abs(x) for x in vector.values.tolist())
        assert vector.divergence() >= expected
        assert vector.divergence(exact=True) == pytest.approx(expected)
    vector.export(0.0)
    assert vector.divergence() == 0.0
    vector.put(None, vector.values.copy())
    assert vector.divergence(exact=True) == 0.0


def test_the_maximum_is_a_bound_until_asked_exactly() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 5, dtype="int64", divergence="max")
    state.begin(0)
    vector.put([0, 1, 2, 3], [100, 7, 1, 1])
    assert vector.divergence() == 100.0
    vector.put([0], [3])
    assert vector.divergence() == 197.0
    assert vector.divergence(exact=True) == 7.0
    assert vector.divergence() == 7.0


def test_both_directions_count() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 2, dtype="int64")
    state.begin(0)
    vector.put(None, [5, -5])
    assert vector.divergence() == 10.0


def test_untracked_states_have_no_divergence() -> None:
    state = SlotState.heap(track=False)
    vector = state.vector("v", 2)
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"}, divergence="count")
    state.begin(0)
    vector.add(None, 1)
    table.add([[1]], n=1)
    assert state.divergence() == 0.0
    with pytest.raises(BadValueError, match="tracked"):
        table.export(0.0)
    assert table.export_full().entries == 1
    state.rollback()
    assert vector.values.tolist() == [0, 0]
    assert len(table) == 0


@pytest.mark.parametrize(
    ("divergence", "weights"),
    [
        ("l3", None),
        ("count", None),
        ("l1", {"value": -1}),
        ("l1", {"other": 1}),
        ("l1", {"value": math.nan}),
    ],
)
def test_bad_descriptions(divergence: str, weights: Any) -> None:
    with pytest.raises(BadValueError):
        SlotState.heap().vector("v", 2, divergence=divergence, weights=weights)


@given(
    st.lists(st.one_of(st.integers(0, 50).map(float), st.floats(0, 1e300)), max_size=60),
    st.floats(0, 1),
)
def test_fewest_entries_are_chosen(amounts: list[float], share: float) -> None:
    limit = math.fsum(amounts) * share
    chosen = worst_first(np.array(amounts), limit)
    left = sorted(a for a, taken in zip(amounts, chosen, strict=True) if not taken)
    taken = sorted(a for a, taken in zip(amounts, chosen, strict=True) if taken)
    assert math.fsum(left) <= limit * (1 + 1e-9)
    assert not taken or not left or left[-1] <= taken[0]  # the worst first
    if taken and limit > 0:  # and not one more than needed
        assert math.fsum([*left, taken[0]]) > limit * (1 - 1e-9)


def test_choosing_all_or_nothing() -> None:
    amounts = np.array([0.0, 1.0, math.inf])
    assert worst_first(amounts, math.inf).tolist() == [False, False, False]
    assert worst_first(amounts, 5.0).tolist() == [False, False, True]
    assert worst_first(amounts, 0.0).tolist() == [False, True, True]
    assert worst_first(np.zeros(0), 1.0).tolist() == []


def test_a_sum_over_primitives_is_never_rounded_down():
    assert sum_up([1.0, 2.0**-60]) == math.nextafter(1.0, 2.0)
    assert sum_up([0.1, 0.2]) >= Fraction(0.1) + Fraction(0.2)
    assert (sum_up([1.0, 2.0]), sum_up([]), sum_up([1e308, 1e308])) == (3.0, 0.0, math.inf)
    state = SlotState.heap()
    big, small = state.number("big"), state.number("small")
    state.begin(0)
    big.add(1.0)
    small.add(2.0**-60)
    assert Fraction(state.divergence(exact=True)) >= 1 + Fraction(1, 2**60)
