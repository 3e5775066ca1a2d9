"""A private view of an arena: it can do all that the state can, and the arena never changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tether.state import Arena, Identity, SlotState

if TYPE_CHECKING:
    from pathlib import Path

ME = Identity(query="q", operator="count", slot=0, slots=1, fingerprint="f")

Change = tuple[str, list[int]]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "clear", "vector", "number"]),
        st.lists(st.integers(0, 400), min_size=1, max_size=200),
    ),
    max_size=4,
)


def open_state(state: SlotState) -> None:
    state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.vector("v", 401)
    state.number("n")
    state.set("s", {"k": pa.int64()})


def apply(state: SlotState, changes: list[Change]) -> None:
    for kind, keys in changes:
        if kind == "add":
            state["t"].add([keys], n=1)
            state["s"].add([keys])
        elif kind == "discard":
            state["s"].discard([keys])
        elif kind == "clear":
            state["t"].clear()
        elif kind == "vector":
            state["v"].add(keys, 1.0)
        else:
            state["n"].add(len(keys))


def content(state: SlotState) -> object:
    counts = Counter(
        {row["k"]: row["n"] for batch in state["t"].batches() for row in batch.to_pylist()}
    )
    members = sorted(row["k"] for batch in state["s"].batches() for row in batch.to_pylist())
    words = (state.version, state.phase, state.divergence(exact=True), state.dirty_entries())
    return counts, members, state["v"].values.tolist(), state["n"].value, words


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@given(first=CHANGES, second=CHANGES, third=CHANGES)
def test_whatever_is_done_to_the_view_the_arena_stays(tmp_path_factory, first, second, third):
    directory = tmp_path_factory.mktemp("arena") / "a"
    arena = Arena.create(directory, ME)
    state = SlotState.open(arena)
    open_state(state)
    state.begin(0)
    apply(state, first)
    state.export(0.0)
    state.commit(0)
    before = content(state)[:4]
    state.begin(1)
    apply(state, second)
    state.commit(1)
    after, stored = content(state), files(directory)
    view = SlotState.private(arena)
    open_state(view)
    assert content(view) == after
    view.rollback()
    assert content(view)[:4] == before
    view.begin(1)
    apply(view, second)
    view.commit(1)
    assert content(view) == after
    view.begin(2)
    apply(view, third)
    view.export(0.0)
    view.commit(2)
    assert content(state) == after
    assert files(directory) == stored
    arena.destroy()
