from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state import SlotState

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "put", "maximum", "minimum"]),
        st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=8),
    ),
    max_size=8,
)


@given(CHANGES, st.sampled_from(["int64", "float64"]))
def test_agrees_with_a_list(changes: Any, dtype: str) -> None:
    state = SlotState.heap()
    vector = state.vector("v", 10, dtype=dtype)
    model = [0] * 10
    state.begin(0)
    combine = {"add": lambda a, b: a + b, "put": lambda _, b: b, "maximum": max, "minimum": min}
    touched = set()
    for operation, items in changes:
        getattr(vector, operation)([at for at, _ in items], [value for _, value in items])
        for at, value in items:
            model[at] = combine[operation](model[at], value)
            touched.add(at)
    assert vector.values.tolist() == model
    assert set(vector.changed().tolist()) == touched
    state.rollback()
    assert vector.values.tolist() == [0] * 10


def test_forms_of_index(state: SlotState) -> None:
    vector = state.vector("v", 4)
    state.begin(0)
    vector.add(None, [1, 2, 3, 4])
    vector.add(pa.array([0, 1], pa.uint8()), 0.5)
    vector.add(np.array([3], "u4"), np.array([1.0], "f4"))
    vector.add(2, 9)
    vector.add([], [])
    assert vector.values.tolist() == [1.5, 2.5, 12.0, 5.0]
    with pytest.raises(ValueError, match="read-only"):
        vector.values[0] = 1


@pytest.mark.parametrize("index", [[-1], [4], [0.5], [True]])
def test_bad_indexes(state: SlotState, index: Any) -> None:
    vector = state.vector("v", 4)
    state.begin(0)
    with pytest.raises(BadValueError, match="index"):
        vector.add(index, 1)


def test_values_follow_later_changes(state: SlotState) -> None:
    vector = state.vector("v", 3)
    view = vector.values
    state.begin(0)
    vector.add(None, 2)
    assert view.tolist() == [2, 2, 2]


def test_the_smaller_form_is_exported(state: SlotState) -> None:
    vector = state.vector("v", 10, dtype="int64")
    state.begin(0)
    vector.put([1, 2, 3], [10, 20, 30])
    few = vector.export(5.0)
    assert not few.full
    assert few.batches[0].to_pydict() == {"index": [1, 2, 3], "value": [10, 20, 30]}
    vector.put(None, 7)
    many = vector.export(5.0)
    assert many.full
    assert many.batches[0].to_pydict() == {"value": [7] * 10}
    fresh = SlotState.heap()
    restored = fresh.vector("v", 10, dtype="int64")
    fresh.begin_restore()
    for export in (few, many, few):
        fresh.restore({"v": export.batches})
    fresh.finish_restore(0)
    assert restored.values.tolist() == [7, 10, 20, 30, 7, 7, 7, 7, 7, 7]
    assert restored.divergence() == 0.0
    assert restored.dirty_entries() == 0


def test_zeros_need_no_backup(state: SlotState) -> None:
    vector = state.vector("v", 10)
    state.begin(0)
    assert vector.export(0.0).batches == []
    vector.put([1], [0.0])
    assert vector.export(0.0).batches == []


def test_clear(state: SlotState) -> None:
    vector = state.vector("v", 3)
    state.begin(0)
    vector.put(None, [1, 0, 2])
    vector.export(0.0)
    vector.clear()
    assert vector.values.tolist() == [0, 0, 0]
    assert vector.divergence() == pytest.approx(3.0)


@pytest.mark.parametrize(("size", "dtype"), [(0, "int64"), (3, "int32")])
def test_bad_descriptions(size: int, dtype: str) -> None:
    with pytest.raises(BadValueError, match="vector"):
        SlotState.heap().vector("v", size, dtype=dtype)


@pytest.mark.parametrize(
    "columns", [{"value": [1.0]}, {"index": [0]}, {"index": [7], "value": [1.0]}]
)
def test_a_backup_of_another_shape_is_refused(columns: dict[str, Any]) -> None:
    state = SlotState.heap()
    state.vector("v", 3)
    state.begin_restore()
    with pytest.raises((BackupUnreadableError, BadValueError)):
        state.restore({"v": [pa.RecordBatch.from_pydict(columns)]})
