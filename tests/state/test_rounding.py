"""Rounded backups: what a recovery finds is never further away than the divergence says."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.backup.packing import packed, unpacked
from tether.core.numbers import STEP
from tether.state import SlotState
from tether.state.rounding import rounded

WEIGHT = 2.5
SIZE = 100


def exact_distance(norm: str, live: dict[Any, float], other: dict[Any, float]) -> Fraction:
    """The distance of two states as exact numbers; squared for ``l2``."""
    apart = [
        abs(Fraction(live.get(key, 0.0)) - Fraction(other.get(key, 0.0))) * Fraction(WEIGHT)
        for key in live.keys() | other.keys()
    ]
    if norm == "max":
        return max(apart, default=Fraction(0))
    return sum((one if norm == "l1" else one * one for one in apart), Fraction(0))


def declared(state: SlotState, kind: str, norm: str) -> Any:
    if kind == "vector":
        weights = {"value": WEIGHT}
        return state.vector("s", SIZE, dtype="float64", divergence=norm, weights=weights)
    if kind == "matrix":
        weights = {"value": WEIGHT}
        return state.matrix("s", 20, SIZE // 20, dtype="float64", divergence=norm, weights=weights)
    columns = {"v": "float64", "seen": "int64"}
    return state.table(
        "s", {"k": pa.int64()}, columns, divergence=norm, weights={"v": WEIGHT, "seen": 0.0}
    )


def add(handle: Any, kind: str, at: np.ndarray, amounts: np.ndarray) -> None:
    if kind == "vector":
        handle.add(at, amounts)
    elif kind == "matrix":
        handle.add(at // (SIZE // 20), at % (SIZE // 20), amounts)
    else:
        handle.add([pa.array(at)], v=amounts, seen=1)


def contents(handle: Any, kind: str) -> dict[Any, float]:
    if kind != "table":
        return dict(enumerate(handle.values.reshape(-1).tolist()))
    rows = handle.rows_to_batch(slice(0, len(handle)))
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def restored(kind: str, norm: str, parts: list[list[pa.RecordBatch]]) -> SlotState:
    """What a recovery finds, by way of the bytes that are written."""
    lost = SlotState.heap()
    declared(lost, kind, norm)
    lost.begin_restore()
    for part in parts:
        lost.restore({"s": [unpacked(batch) for batch in packed(part)[0]]})
    lost.finish_restore(0)
    return lost


@pytest.mark.parametrize("kind", ["vector", "matrix", "table"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-200, 1e-6, 1.0, 1e9, 1e100]),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.3, 0.5]),
            st.sampled_from([0.0, 1e-9, 0.05, 0.45]),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
)
@settings(max_examples=10, deadline=None)
def test_the_divergence_covers_what_was_rounded_off(
    kind: str, norm: str, seed: int, scale: float, steps: list[tuple[float, float, bool, bool]]
) -> None:
    random = np.random.default_rng(seed)
    state = SlotState.heap()
    handle = declared(state, kind, norm)
    parts: list[list[pa.RecordBatch]] = []
    carried: list[float] = []
    for epoch, (target, rounding, full, undone) in enumerate(steps):
        state.begin(epoch)
        at = random.integers(0, SIZE, random.integers(1, SIZE))
        add(handle, kind, at, random.normal(size=len(at)) * scale)
        drift = state.divergence(exact=True)
        allowed = rounding * drift
        exports = state.export_full(allowed) if full else state.export(target * drift, allowed)
        left = state.divergence(exact=True)
        assert left <= (allowed if full else (target * drift + allowed) * (1 + 2**-40))
        if undone:
            state.rollback()
            continue
        if exports:
            parts.append(exports["s"].batches)
            carried.append(drift + allowed)
        found = restored(kind, norm, parts)
        apart = exact_distance(norm, contents(handle, kind), contents(found["s"], kind))
        said = Fraction(left) if norm != "l2" else Fraction(left) ** 2
        assert apart <= said
        state.commit(epoch)
        for number, more in enumerate(carried):  # one frame is damaged, and passed over
            found = restored(kind, norm, parts[:number] + parts[number + 1 :])
            apart = exact_distance(norm, contents(handle, kind), contents(found["s"], kind))
            most = (Fraction(left) + Fraction(more)) * (1 + Fraction(1, 2**40))
            assert apart <= (most if norm != "l2" else most**2)
    state.begin(len(steps))
    parts += [export.batches for export in state.export(0.0).values()]
    found = restored(kind, norm, parts)
    assert contents(found["s"], kind) == contents(handle, kind)  # nothing rounded is left
    assert state.divergence(exact=True) == 0


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20), st.integers(-900, 800))
def test_the_nearest_multiple_is_a_multiple_and_half_a_step_away(
    values: list[float], exponent: int
) -> None:
    step = Fraction(2) ** exponent
    for before, after in zip(values, rounded(np.array(values), exponent).tolist(), strict=True):
        if math.isinf(before):
            assert after == before
            continue
        assert (Fraction(after) / step).denominator == 1
        assert abs(Fraction(after) - Fraction(before)) <= step / 2
        assert after or math.copysign(1.0, after) == 1.0


def test_only_floats_that_count_are_rounded() -> None:
    state = SlotState.heap()
    columns = {"v": "float64", "free": "float64", "n": "int64"}
    table = state.table(
        "s", {"k": pa.int64()}, columns, divergence="l1", weights={"free": 0.0, "n": 0.001}
    )
    counted = state.vector("c", 3, dtype="int64")
    state.begin(0)
    keys = np.arange(100)
    odd = keys / 7 + 0.1
    table.add([pa.array(keys)], v=odd, free=odd, n=keys)
    counted.add([0, 1, 2], [1, 2, 3])
    exports = state.export_full(100.0)
    (batch,) = exports["s"].batches
    assert batch["free"].to_pylist() == odd.tolist()
    assert batch["n"].to_pylist() == keys.tolist()
    assert batch["v"].to_pylist() != odd.tolist()
    assert STEP in batch.schema.field("v").metadata
    assert exports["c"].batches[0]["value"].to_pylist() == [1, 2, 3]
    assert 0 < state.divergence(exact=True) <= 50.0


def test_what_cannot_be_rounded_within_the_allowance_is_written_as_it_is() -> None:
    state = SlotState.heap()
    vector = state.vector("s", 4, divergence="max")
    state.begin(0)
    vector.add([0, 1, 2, 3], [1 / 3, math.inf, -1e308, 5e-324])
    state.export_full(1e-320)
    assert state.divergence(exact=True) == 0
    vector.add([0], 1 / 7)
    state.export(0.0, 2.0**-10)
    assert 0 < state.divergence(exact=True) <= 2.0**-10


def test_a_model_takes_a_quarter_of_the_bytes_and_loses_no_more_than_its_part_of_theta() -> None:
    state = SlotState.heap()
    model = state.vector("s", 10_000, divergence="l2")
    state.begin(0)
    model.assign(np.random.default_rng(1).normal(size=10_000) / 10)
    (export,) = state.export_full(0.1).values()
    (short,), _ = packed(export.batches)
    assert short.schema.field("value").type == pa.int16()
    assert export.divergence_after == state.divergence(exact=True) <= 0.1
    state.commit(0)
    for epoch in range(1, 4):  # what earlier backups rounded off does not add up
        state.begin(epoch)
        model.add_all(1e-4)
        state.export_full(0.1)
        assert state.divergence(exact=True) <= 0.1
        state.commit(epoch)
