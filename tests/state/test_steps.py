"""An epoch in steps, never committed: each tells its own changes, and a rollback undoes them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tether.state import Arena, Identity, SlotState
from tether.state.header import Phase

if TYPE_CHECKING:
    from pathlib import Path

KEYS = st.lists(st.integers(0, 12), max_size=6)


def keys(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, pa.int64())})


def content(state: SlotState) -> tuple[object, ...]:
    table, vector, total = state["t"], state["v"], state["n"]
    batch = pa.Table.from_batches(list(table.batches())) if len(table) else None  # type: ignore[attr-defined]
    rows = (
        [] if batch is None else sorted(map(tuple, zip(*batch.to_pydict().values(), strict=True)))
    )
    return rows, vector.values.tolist(), total.value, state.divergence(exact=True), state.version  # type: ignore[attr-defined]


def made(state: SlotState) -> SlotState:
    state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.vector("v", 13)
    state.number("n")
    return state


def touch(state: SlotState, values: list[int], by: int) -> None:
    if values:
        state["t"].add(keys(values), n=by)  # type: ignore[attr-defined]
        state["v"].add(sorted(set(values)), float(by))  # type: ignore[attr-defined]
        state["n"].add(by)  # type: ignore[attr-defined]


@given(st.lists(KEYS, max_size=3), st.lists(KEYS, min_size=1, max_size=5), KEYS)
def test_steps_are_undone_together(
    before: list[list[int]], steps: list[list[int]], after: list[int]
) -> None:
    state = made(SlotState.heap())
    for epoch, values in enumerate(before):
        state.begin(epoch)
        touch(state, values, 1)
        state.commit(epoch)
    was, epoch = content(state), len(before)
    for number, values in enumerate(steps):
        if number:
            state.begin_step()
        else:
            state.begin(epoch)
        touch(state, values, 10)
        state.settle()
        table = state["t"]
        told = table.rows_to_batch(table.changed())["k"].to_pylist() if values else []  # type: ignore[attr-defined]
        assert sorted(told) == sorted(set(values))
        assert state.phase == Phase.APPLYING
    assert (state.journal_bytes() > 0) == any(
        steps
    )  # the vector's entries are there from the start
    state.rollback()
    assert content(state) == was
    state.begin(epoch)  # as if nothing had been
    touch(state, after, 3)
    state.commit(epoch)
    again = made(SlotState.heap())
    for number, values in enumerate([*before, after]):
        again.begin(number)
        touch(again, values, 3 if number == epoch else 1)
        again.commit(number)
    assert content(state) == content(again)


def test_a_copy_of_an_arena_has_half_an_epoch_too(tmp_path: Path) -> None:
    arena = Arena.create(tmp_path / "a", Identity("q", "o", 0, 1, "f"))
    state = made(SlotState.open(arena))
    state.begin(0)
    touch(state, [1, 2, 3], 1)
    state.commit(0)
    was = content(state)
    state.begin(1)
    touch(state, [2, 3, 4], 10)
    state.settle()
    now = content(state)
    other = arena.copy(tmp_path / "b", Identity("ahead", "o", 0, 1, "f"))
    copied = made(SlotState.open(other))
    assert content(copied) == now
    touch(state, [5], 1)  # they are two by now
    assert content(copied) == now
    copied.begin_step()
    touch(copied, [6], 1)
    copied.rollback()
    assert content(copied) == was
    state.rollback()
    assert content(state) == was
    other.destroy()
    arena.destroy()
