"""Exports settled later: at any time the divergence covers the distance to what is durable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BadValueError
from tether.state import Arena, SlotState


def test_the_record_survives_its_process(arena: Arena, reattach: Any) -> None:
    state = SlotState.open(arena)
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.begin(0)
    table.add([np.arange(100)], n=np.arange(100))
    begun = state.begin_export(50.0)
    assert begun is not None
    state.commit(0)
    again = SlotState.open(reattach(arena))
    again.begin(1)
    found = again.pending
    assert found is not None
    assert (found.token, found.epoch) == (begun.token, 0)
    with pytest.raises(BadValueError, match="not here"):
        _ = found.exports
    found.settle()
    assert again.divergence() <= 50.0
    again.commit(1)
    again.begin(2)
    assert not [path for path in arena.directory.iterdir() if "pending" in path.name]


def test_what_changed_meanwhile_is_not_durable() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 3, dtype="int64")
    state.begin(0)
    vector.assign([10, 1, 0])
    begun = state.begin_export(1.0)
    assert begun is not None
    vector.put([0], [4])
    assert state.divergence() == 5.0
    begun.settle()
    assert state.divergence() == 7.0  # 10 is durable, 4 is live
    export = vector.export(1.0)
    assert export.batches[0].to_pydict()["value"] == [4]


def test_misuse_is_refused() -> None:
    state = SlotState.heap()
    vector = state.vector("v", 8)
    with pytest.raises(BadValueError, match="phase"):
        state.begin_export(0.0)
    state.begin(0)
    vector.add([1], 5)
    begun = state.begin_export(0.0)
    assert begun is not None
    with pytest.raises(BadValueError, match="still being written"):
        state.begin_export(0.0)
    with pytest.raises(BadValueError, match="still being written"):
        vector.export(0.0)
    state.rollback()
    state.begin(0)
    assert state.pending is None
    with pytest.raises(BadValueError, match="cannot be settled"):
        begun.settle()
    with pytest.raises(BadValueError, match="target"):
        state.begin_export(float("nan")) or vector.begin_export(float("nan"))


def test_nothing_to_write_begins_nothing() -> None:
    state = SlotState.heap()
    state.vector("v", 3)
    state.begin(0)
    assert state.begin_export(0.0) is None
    assert state.pending is None


def filled(state: SlotState, **options: Any) -> Any:
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"}, **options)
    state.begin(0)
    table.add([[1, 2, 3]], n=[4, 5, 6])
    return table


@pytest.mark.parametrize("divergence", ["l1", "l2", "max", "count"])
def test_cleared_while_it_is_written_and_then_given_up(divergence: str, state: SlotState) -> None:
    """The backups never come to hold it, so nothing of it may be left in the divergence."""
    table = filled(state, divergence=divergence)
    begun = state.begin_export(0.0)
    assert begun is not None
    table.clear()
    assert state.divergence() == 0.0
    begun.abandon()
    assert (state.divergence(exact=True), state.dirty_entries()) == (0.0, 0)
    assert state.export(0.0) == {}
    table.add([[7]], n=[1])
    assert state.divergence(exact=True) == pytest.approx(1)


@pytest.mark.parametrize(
    ("divergence", "told"), [("l1", 15.0), ("l2", math.sqrt(77)), ("max", 6.0), ("count", 3.0)]
)
def test_cleared_while_it_is_written_and_then_settled(
    divergence: str, told: float, state: SlotState
) -> None:
    """Now the backups hold what is no longer there."""
    table = filled(state, divergence=divergence)
    begun = state.begin_export(0.0)
    assert begun is not None
    table.clear()
    table.clear()  # nothing more was there
    begun.settle()
    assert state.divergence() == pytest.approx(told)
    assert state.dirty_entries() > 0
    table.add([[7]], n=[0])
    export = table.export(0.0)
    assert (export.full, export.entries) == (True, 1)
    assert (state.divergence(exact=True), state.dirty_entries()) == (0.0, 0)


def test_a_part_that_is_settled_after_a_clear_joins_what_the_backups_hold(
    state: SlotState,
) -> None:
    table = filled(state)
    state.export(0.0)
    table.add([[3, 4]], n=[10, 100])
    table.add([np.arange(10, 20)], n=0)
    begun = state.begin_export(1.0)
    assert begun is not None
    assert begun.exports["t"].entries == 2
    table.add([[1]], n=[1000])
    table.clear()
    assert state.divergence() == 4 + 5 + 6
    begun.settle()
    assert state.divergence() == 4 + 5 + 16 + 100
    assert state.dirty_entries() == 4


def test_a_whole_that_is_settled_after_a_clear_replaces_what_the_backups_hold(
    state: SlotState,
) -> None:
    table = filled(state)
    state.export(0.0)
    table.clear()
    table.add([[8]], n=[2])
    begun = state.begin_export(0.0)
    assert begun is not None
    assert begun.exports["t"].full
    table.clear()
    assert state.divergence() == 15.0
    begun.settle()
    assert (state.divergence(), state.dirty_entries()) == (2.0, 1)


def test_what_was_restored_is_durable():
    first = SlotState.heap()
    counts = first.table("counts", {"k": pa.int64()}, {"n": "int64"})
    first.begin(0)
    counts.add([pa.array([1, 2])], n=[5, 7])
    parts = {name: export.batches for name, export in first.export(0.0).items()}
    second = SlotState.heap()
    again = second.table("counts", {"k": pa.int64()}, {"n": "int64"})
    second.begin_restore()
    second.restore(parts)
    second.finish_restore(0)
    second.begin(1)
    again.add([pa.array([1])], n=[1])
    assert second.divergence(exact=True) == 1.0
    assert second.export(0.0)["counts"].entries == 1
