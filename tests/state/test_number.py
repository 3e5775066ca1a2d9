from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state import SlotState

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, max_size=6), st.sampled_from([1.0, 0.25, 3.7, 0.0]))
def test_the_difference_is_never_too_small(values: list[float], weight: float) -> None:
    state = SlotState.heap()
    number = state.number("n", weights={"value": weight})
    durable = 0.0
    state.begin(0)
    for at, value in enumerate(values):
        number.put(value)
        true = abs(Fraction(value) - Fraction(durable)) * Fraction(weight)
        told = number.divergence()
        assert math.isinf(told) or Fraction(told) >= true
        assert math.isinf(told) or told <= float(true) * (1 + 1e-12) + 1e-300
        if at % 2:
            assert bool(number.export(0.0).batches) == (
                value != durable or str(value) != str(durable)
            )
            durable = value


@given(st.lists(st.integers(-(2**62), 2**62), max_size=8))
def test_integers_are_exact(values: list[int]) -> None:
    state = SlotState.heap()
    number = state.number("n", dtype="int64")
    state.begin(0)
    try:
        number.add(values)
    except BadValueError:
        assert not -(2**63) <= sum(values) < 2**63
        assert number.value == 0
    else:
        assert number.value == sum(values)
        assert number.divergence() >= abs(sum(values))
        assert number.divergence() == pytest.approx(abs(sum(values)), rel=1e-15)


def test_changes_and_rollback(state: SlotState) -> None:
    number = state.number("n")
    state.begin(0)
    number.add(pa.array([1.5, 2.5]))
    number += 1
    number -= np.array([0.5, 0.5])
    number.maximum([3.0, 9.0])
    number.minimum(8)
    assert (number.value, number.divergence()) == (8.0, 8.0)
    state.commit(0)
    state.begin(1)
    number.clear()
    assert number.value == 0.0
    state.rollback()
    assert number.value == 8.0


def test_export_and_restore(state: SlotState) -> None:
    number = state.number("n", dtype="int64")
    state.begin(0)
    number.put(9)
    assert number.export(9.0).batches == []
    export = number.export(8.0)
    assert (export.carried, export.divergence_after, export.entries) == (9.0, 0.0, 1)
    assert number.dirty_entries() == 0
    fresh = SlotState.heap()
    restored = fresh.number("n", dtype="int64")
    fresh.begin_restore()
    fresh.restore({"n": export.batches})
    fresh.finish_restore(0)
    assert (restored.value, restored.divergence()) == (9, 0.0)


def test_infinities(state: SlotState) -> None:
    number = state.number("n")
    state.begin(0)
    number.put(math.inf)
    assert number.divergence() == math.inf
    with pytest.raises(BadValueError, match="NaN"):
        number.add(-math.inf)
    number.export(1.0)
    assert number.divergence() == 0.0


@pytest.mark.parametrize("value", [math.nan, "x", None, [1, 2]])
def test_bad_values(state: SlotState, value: Any) -> None:
    number = state.number("n")
    state.begin(0)
    with pytest.raises(BadValueError):
        number.put(value)
    assert number.value == 0.0


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"divergence": "l1"}])
def test_bad_descriptions(options: Any) -> None:
    with pytest.raises(BadValueError, match="number"):
        SlotState.heap().number("n", **options)


def test_a_backup_of_another_shape_is_refused() -> None:
    state = SlotState.heap()
    state.number("n")
    state.begin_restore()
    with pytest.raises(BackupUnreadableError, match="does not fit"):
        state.restore({"n": [pa.RecordBatch.from_pydict({"value": [1.0, 2.0]})]})


def test_outside_of_an_epoch_nothing_changes(state: SlotState) -> None:
    number = state.number("n")
    with pytest.raises(BadValueError, match="phase"):
        number.add(1)
