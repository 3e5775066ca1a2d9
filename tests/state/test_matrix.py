from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BadValueError
from tether.state import SlotState

ITEMS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-9, 9)), max_size=12)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "put", "maximum", "minimum"]), ITEMS), max_size=6),
    st.sampled_from(["int64", "float64"]),
)
def test_agrees_with_a_dict(changes: Any, dtype: str) -> None:
    state = SlotState.heap()
    matrix = state.matrix("m", 3, 4, dtype=dtype)
    model = np.zeros((3, 4))
    combine = {"add": lambda a, b: a + b, "put": lambda _, b: b, "maximum": max, "minimum": min}
    state.begin(0)
    touched = set()
    for operation, items in changes:
        rows, columns, values = ([item[at] for item in items] for at in range(3))
        getattr(matrix, operation)(rows, columns, values)
        for row, column, value in items:
            model[row, column] = combine[operation](model[row, column], value)
            touched.add(row * 4 + column)
    assert matrix.values.tolist() == model.tolist()
    assert sorted(matrix.changed().tolist()) == sorted(touched)  # each journaled once
    assert matrix.divergence(exact=True) == pytest.approx(np.abs(model).sum(), abs=1e-9)
    state.rollback()
    assert not matrix.values.any()


def test_a_sketch_takes_a_batch_in_all_rows_at_once(state: SlotState) -> None:
    sketch = state.matrix("cms", 4, 8, dtype="int64")
    draw = np.random.default_rng(1)
    buckets, sizes = draw.integers(0, 8, (4, 1000)), draw.integers(1, 1500, 1000)
    state.begin(0)
    sketch.add(np.arange(4)[:, None], buckets, sizes)
    expected = np.zeros((4, 8), int)
    np.add.at(expected, (np.arange(4)[:, None], buckets), np.broadcast_to(sizes, (4, 1000)))
    assert sketch.values.tolist() == expected.tolist()
    assert len(sketch.changed()) == 32
    assert sketch.divergence() == expected.sum()


def test_rows_and_whole_arrays(state: SlotState) -> None:
    matrix = state.matrix("m", 2, 3)
    view = matrix.values
    state.begin(0)
    matrix.add_rows([0, 0], [[1, 2, 3], [1, 1, 1]])
    matrix.put_rows([1], [7, 8, 9])
    assert view.tolist() == [[2, 3, 4], [7, 8, 9]]
    matrix += np.ones((2, 3))
    matrix -= 1
    matrix *= [0.5, -1, 0]
    assert view.tolist() == [[1, -3, 0], [3.5, -8, 0]]
    for factor in (2, -1.5, np.nan, [0.5, 1, 1.5]):
        with pytest.raises(BadValueError, match="more than 1"):
            matrix *= factor
    assert view.tolist() == [[1, -3, 0], [3.5, -8, 0]]
    matrix.assign(np.eye(2, 3))
    assert view.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert matrix.divergence(exact=True) == pytest.approx(2.0)
    matrix.clear()
    assert matrix.divergence(exact=True) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.add([0], [4], 1),
        lambda m: m.add([2], [0], 1),
        lambda m: m.add([-1], [0], 1),
        lambda m: m.add([0.5], [0], 1),
        lambda m: m.add([0, 1], [0, 1, 2], 1),
        lambda m: m.add(0, 0, [1, 2]),
        lambda m: m.add([0], [0], [float("nan")]),
        lambda m: m.add([0], [0], ["x"]),
        lambda m: m.add([0], [0], pa.array([None], pa.float64())),
        lambda m: m.add_rows([0], [1, 2]),
        lambda m: m.add_all([1, 2, 3]),
        lambda m: m.assign(np.zeros((3, 2))),
        lambda m: m.assign(np.full((2, 4), np.nan)),
    ],
)
def test_bad_changes_change_nothing(state: SlotState, change: Any) -> None:
    matrix = state.matrix("m", 2, 4)
    state.begin(0)
    with pytest.raises(BadValueError):
        change(matrix)
    assert not matrix.values.any()
    assert matrix.divergence() == 0.0


def test_integers_do_not_wrap(state: SlotState) -> None:
    matrix = state.matrix("m", 1, 2, dtype="int64")
    state.begin(0)
    matrix.assign(2**62)
    with pytest.raises(BadValueError, match="overflow"):
        matrix.add_all([[2**62, 2**62]])
    with pytest.raises(BadValueError, match="multiplied"):
        matrix *= 4


@pytest.mark.parametrize("shape", [(0, 1), (1, 0), (1.5, 2), (1 << 20, 1 << 20)])
def test_bad_shapes(shape: Any) -> None:
    with pytest.raises(BadValueError, match="matrix"):
        SlotState.heap().matrix("m", *shape)


def test_vectors_have_whole_array_changes_too(state: SlotState) -> None:
    weights = state.vector("w", 3, divergence="l2")
    state.begin(0)
    weights.assign([3.0, 0.0, 4.0])
    assert weights.divergence(exact=True) == pytest.approx(5.0)
    weights.add_all(pa.array([1.0, 1.0, 1.0]))
    weights -= [1.0, 1.0, 1.0]
    assert weights.divergence(exact=True) == pytest.approx(5.0)
    with pytest.raises(BadValueError, match="shape"):
        weights.add_all([1.0, 2.0])


def test_many_whole_changes_in_an_epoch_are_measured_once_and_right(state: SlotState) -> None:
    weights = state.vector("w", 50)
    draw = np.random.default_rng(0)
    model = np.zeros(50)
    for epoch in range(3):
        state.begin(epoch)
        for _ in range(4):
            step = draw.integers(-5, 6, 50)
            weights += step
            model += step
        assert weights.divergence(exact=True) == pytest.approx(np.abs(model).sum())
        state.commit(epoch)
        assert weights.divergence(exact=True) == pytest.approx(np.abs(model).sum())
