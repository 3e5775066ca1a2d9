"""The index finds every key after any order of growth, rollback and repeated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.state import Arena, SlotState, Table, index
from tether.state import keys as keys_module


def make(state: SlotState) -> Table:
    return state.table("t", {"k": pa.int64()}, {"n": "int64"})


def check(table: Table, model: dict[int, int]) -> None:
    assert len(table) == len(model)
    found = table.get([pa.array(list(model), pa.int64())])
    assert found.found.all()
    assert found.columns["n"].tolist() == list(model.values())


EPOCHS = st.lists(
    st.tuples(st.lists(st.lists(st.integers(0, 300), max_size=60), max_size=4), st.booleans()),
    max_size=8,
)


@pytest.mark.parametrize("clash", [False, True], ids=["good hash", "bad hash"])
@settings(max_examples=60)
@given(epochs=EPOCHS)
def test_rollbacks_and_reused_rows(clash: bool, epochs: Any) -> None:
    """Rolled-back keys leave entries behind that point at rows which other keys get later."""
    good = keys_module.hash_keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_SMALLEST", 2)  # so that it fills up and grows all the time
        if clash:
            patch.setattr(keys_module, "hash_keys", lambda *a: good(*a) & np.uint32(0xC0000000))
        state = SlotState.heap()
        table = make(state)
        model: dict[int, int] = {}
        for number, (batches, keep) in enumerate(epochs):
            state.begin(number)
            before = dict(model)
            for batch in batches:
                table.add([pa.array(batch, pa.int64())], n=1)
                for key in batch:
                    model[key] = model.get(key, 0) + 1
            check(table, model)
            if keep:
                state.commit(number)
            else:
                state.rollback()
                model = before
                check(table, model)
                gone = [k for batch in batches for k in batch if k not in model]
                assert not table.get([pa.array(gone, pa.int64())]).found.any()


def test_a_retried_epoch_does_not_fill_the_index() -> None:
    state = SlotState.heap()
    table = make(state)
    draw = np.random.default_rng(5)
    keys = draw.permutation(20_000)
    state.begin(0)
    table.add([pa.array(keys[:10_000])], n=1)
    state.commit(0)
    for attempt in range(40):  # every attempt writes its keys to other places
        state.begin(1)
        table.add([pa.array(draw.permutation(keys[10_000:]))], n=1)
        if attempt < 39:
            state.rollback()
    state.commit(1)
    check(table, dict.fromkeys(keys.tolist(), 1))
    places = table._keys.index._places
    assert np.count_nonzero((places >= 0) & (places < len(table))) <= 0.6 * len(places)


def test_a_batch_of_one_repeated_key_takes_one_row() -> None:
    state = SlotState.heap()
    table = make(state)
    state.begin(0)
    rows = table.add([pa.array(np.full(50_000, 7))], n=1)
    assert not rows.any()
    check(table, {7: 50_000})


def test_marks_left_by_a_kill_are_empty_places(arena: Arena) -> None:
    state = SlotState.open(arena)
    table = make(state)
    state.begin(0)
    table.add([pa.array(np.arange(100))], n=1)
    state.commit(0)
    places = table._keys.index._places
    places[places < 0] = -2 - np.arange(np.count_nonzero(places < 0)) % 50  # names of old claims
    state.begin(1)
    rows = table.add([pa.array(np.arange(50, 150))], n=1)
    assert rows.tolist() == list(range(50, 150))
    check(table, {key: 2 if 50 <= key < 100 else 1 for key in range(150)})


def test_another_attachment_follows_growth(arena: Arena) -> None:
    first, second = SlotState.open(arena), None
    mine = make(first)
    second = SlotState.open(Arena(arena.directory, arena._lock))
    theirs = make(second)
    model: dict[int, int] = {}
    for epoch in range(6):
        state, table = (first, mine) if epoch % 2 else (second, theirs)
        assert state.refresh()
        state.begin(epoch)
        keys = np.arange(epoch * 4000, epoch * 6000 + 500)
        table.add([pa.array(keys)], n=1)
        for key in keys.tolist():
            model[key] = model.get(key, 0) + 1
        state.commit(epoch)
        check(table, model)
    first.refresh()
    check(mine, model)
    files = [path.name for path in arena.directory.iterdir() if ".index." in path.name]
    assert len(files) == 1
