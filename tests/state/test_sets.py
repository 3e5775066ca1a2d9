from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state import SlotState, sets

KEYS = st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=10)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "discard", "export", "clear", "rollback", "settle"]), KEYS),
    max_size=20,
)


def members(some: Any) -> set[Any]:
    return {row["k"] for batch in some.batches(max_rows=3) for row in batch.to_pylist()}


@settings(max_examples=60)
@given(STEPS, st.booleans())
def test_agrees_with_a_set(steps: Any, packs: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_WORTH_PACKING", 4 if packs else 4096)
        check_steps(steps)


def check_steps(steps: Any) -> None:
    state = SlotState.heap()
    some = state.set("s", {"k": pa.int64()})
    live: set[Any] = set()
    durable: set[Any] = set()
    frames: list[Any] = []
    pending: Any = None
    saved = (set(), set(), 0, None)
    epoch = 0
    state.begin(0)
    for step, keys in steps:
        array = pa.array(keys, pa.int64())
        if step == "add":
            new = some.add(array).tolist()
            assert [k for k, is_new in zip(keys, new, strict=True) if is_new] == list(
                dict.fromkeys(k for k in keys if k not in live)
            )
            live |= set(keys)
        elif step == "discard":
            gone = some.discard(array).tolist()
            assert {k for k, was in zip(keys, gone, strict=True) if was} == live & set(keys)
            live -= set(keys)
        elif step == "clear" and len(keys) > 5:
            some.clear()
            live = set()
        elif step == "export" and state.pending is None:
            target = some.divergence() * len(keys) / 12
            if len(keys) % 2:
                begun = state.begin_export(target)
                pending = begun and (begun.exports["s"].batches, set(live), begun.exports["s"].full)
            else:
                export = some.export(target)
                assert export.divergence_after <= target
                if export.batches:
                    frames.append(export.batches)
                    durable = members(restored(frames))
        elif step == "settle" and state.pending is not None:
            state.pending.settle()
            frames.append(pending[0])
            durable = members(restored(frames))
        elif step == "rollback":
            state.rollback()
            live, durable = set(saved[0]), set(saved[1])
            del frames[saved[2] :]
            pending = saved[3]
            state.begin(epoch)
        if len(keys) == 9:
            state.commit(epoch)
            epoch += 1
            state.begin(epoch)
            saved = (set(live), set(durable), len(frames), pending)
        agrees(some, live, durable, exactly="clear" not in [name for name, _ in steps])


def agrees(some: Any, live: set[Any], durable: set[Any], *, exactly: bool) -> None:
    assert members(some) == live
    assert len(some) == len(live)
    asked = [None, *range(26)]
    assert some.contains(pa.array(asked, pa.int64())).tolist() == [k in live for k in asked]
    assert some.divergence(exact=True) >= len(live ^ durable)
    if exactly:
        assert some.divergence(exact=True) == len(live ^ durable)


def restored(frames: list[Any]) -> Any:
    fresh = SlotState.heap()
    some = fresh.set("s", {"k": pa.int64()})
    fresh.begin_restore()
    for frame in frames:
        fresh.restore({"s": frame})
    fresh.finish_restore(0)
    assert some.divergence(exact=True) == 0.0
    assert len(some) == len(members(some))
    return some


def test_equal_sizes_are_not_equal_sets(state: SlotState) -> None:
    some = state.set("s", {"k": pa.string()})
    state.begin(0)
    some.add(pa.array(["a", "b"]))
    some.export(0.0)
    some.discard(pa.array(["a", "b"]))
    some.add(pa.array(["c", "d"]))
    assert some.divergence() == 4.0


def test_the_smaller_form_is_exported(state: SlotState) -> None:
    some = state.set("s", {"k": pa.int64()})
    state.begin(0)
    some.add(np.arange(10))
    assert some.export(0.0).full
    some.discard(np.arange(3))
    part = some.export(0.0)
    assert (part.full, part.entries) == (False, 3)
    assert part.batches[0].to_pydict() == {"k": [0, 1, 2], "member": [False] * 3}
    some.discard(np.arange(9))
    assert some.export(0.0).batches[0].to_pydict() == {"k": [9]}


def test_came_and_left_between_backups_costs_nothing(state: SlotState) -> None:
    some = state.set("s", {"k": pa.int64()})
    state.begin(0)
    some.add(np.arange(5))
    some.discard(np.arange(5))
    assert some.divergence(exact=True) == 0.0
    assert some.export(0.0).batches == []


def test_memory_does_not_grow_with_members_that_left(state: SlotState) -> None:
    some = state.set("s", {"k": pa.int64()})
    for epoch in range(40):
        state.begin(epoch)
        some.add(np.arange(epoch * 1000, epoch * 1000 + 1000))
        some.discard(np.arange(epoch * 1000 - 500, epoch * 1000 + 500))
        if epoch % 4 == 0:
            some.export(0.0)
        state.commit(epoch)
    assert len(some) == 500
    assert len(some._cells) < 12_000


def test_several_key_columns(state: SlotState) -> None:
    some = state.set("s", {"a": pa.string(), "b": pa.int32()})
    state.begin(0)
    batch = pa.RecordBatch.from_pydict({"a": ["x", "x", "y"], "b": pa.array([1, 1, 2], pa.int32())})
    assert some.add(batch).tolist() == [True, False, True]
    assert some.contains([["x", "y"], [1, 1]]).tolist() == [True, False]
    with pytest.raises(BadValueError, match="set"):
        some.add([["x"]])


def test_bad_descriptions() -> None:
    with pytest.raises(BadValueError, match="member"):
        SlotState.heap().set("s", {"member": pa.int64()})
    with pytest.raises(BadValueError, match="count"):
        SlotState.heap().set("s", {"k": pa.int64()}, divergence="l1")


def test_a_backup_of_another_shape_is_refused() -> None:
    state = SlotState.heap()
    state.set("s", {"k": pa.int64()})
    state.begin_restore()
    with pytest.raises(BackupUnreadableError, match="set"):
        state.restore({"s": [pa.RecordBatch.from_pydict({"other": [1]})]})
