from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from tests.state.workload import Tally

from tether.core.errors import ArenaError, BackupUnreadableError, BadValueError
from tether.state import Arena, SlotState


def test_the_object_stays_the_same_one(state: SlotState) -> None:
    tally = Tally()
    handle = state.object("t", tally)
    state.begin(0)
    tally.count = 5
    state.commit(0)
    state.begin(1)
    tally.count = 9
    assert state.rollback()
    assert handle.value is tally
    assert tally.count == 5
    assert state.object("t", tally) is handle


def test_another_process_finds_the_image(arena: Arena, reattach: Any) -> None:
    state = SlotState.open(arena)
    mine = state.object("t", Tally())
    for epoch in range(5):
        state.begin(epoch)
        mine.value.count += 10
        if epoch == 2:
            mine.export(0.0)
        state.commit(epoch)
    again = reattach(arena)
    other_state = SlotState.open(again)
    assert other_state.divergence() == 20.0  # even before the object is declared
    other = other_state.object("t", Tally())
    assert (other.value.count, other.divergence()) == (50, 20.0)
    other_state.begin(5)
    other.value.count = 7
    other_state.commit(5)
    assert state.refresh()
    assert mine.value.count == 7
    images = [path for path in arena.directory.iterdir() if ".image." in path.name]
    assert len(images) <= 4
    again.release()


def test_a_killed_epoch_is_rolled_back_before_and_after_declaring(
    arena: Arena, reattach: Any
) -> None:
    state = SlotState.open(arena)
    handle = state.object("t", Tally())
    state.begin(0)
    handle.value.count = 1
    state.commit(0)
    state.begin(1)
    handle.value.count = 100
    handle.export(0.0)
    second = SlotState.open(reattach(arena))
    assert second.rollback()
    assert second.object("t", Tally()).value.count == 1


def test_export_restore_and_targets(state: SlotState) -> None:
    handle = state.object("t", Tally())
    state.begin(0)
    assert handle.export(0.0).batches == []  # as new
    handle.value.count = 6
    assert handle.export(6.0).batches == []
    export = handle.export(5.0)
    assert (export.full, export.carried, export.divergence_after) == (True, 6.0, 0.0)
    assert handle.divergence() == 0.0
    assert handle.dirty_entries() == 0  # also before the epoch is committed
    state.commit(0)
    assert handle.dirty_entries() == 0
    fresh = SlotState.heap()
    restored = fresh.object("t", Tally())
    fresh.begin_restore()
    fresh.restore({"t": export.batches})
    fresh.finish_restore(0)
    assert (restored.value.count, restored.divergence(), fresh.dirty_entries()) == (6, 0.0, 0)


def test_an_object_that_differs_is_dirty_although_its_distance_is_blind(state: SlotState) -> None:
    class Blind(Tally):
        def state_divergence(self, backup: bytes) -> float:
            return 0.0

    handle = state.object("t", Blind())
    state.begin(0)
    assert handle.dirty_entries() == 0
    handle.value.count = 1
    assert handle.dirty_entries() == 1
    state.commit(0)
    assert handle.dirty_entries() == 1


class Lying(Tally):
    answer: Any = 0.0

    def state_divergence(self, backup: bytes) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [math.nan, -1.0, None, "x"])
def test_a_bad_divergence_is_an_error(state: SlotState, answer: Any) -> None:
    lying = Lying()
    lying.answer = answer
    handle = state.object("t", lying)
    state.begin(0)
    with pytest.raises(BadValueError, match=r"state_divergence of 't' gave"):
        handle.divergence()
    with pytest.raises(BadValueError, match="state_divergence"):
        state.commit(0)
    state.rollback()


def test_a_divergence_that_no_backup_brings_down_is_an_error(state: SlotState) -> None:
    lying = Lying()
    lying.answer = 3.0
    handle = state.object("t", lying)
    state.begin(0)
    lying.count = 1
    with pytest.raises(BadValueError, match="its own image"):
        handle.export(1.0)


def test_shrinking_without_a_backup_is_an_error_where_it_may_only_grow(state: SlotState) -> None:
    lying = Lying()
    handle = state.object("t", lying, increasing=True)
    lying.answer = 5.0
    state.begin(0)
    state.commit(0)
    state.begin(1)
    lying.answer = 4.0
    with pytest.raises(BadValueError, match=r"fell from 5\.0 to 4\.0"):
        handle.divergence()
    state.rollback()
    honest = state.object("u", Tally(), increasing=True)
    for epoch in range(6):
        lying.answer = 5.0 + epoch
        state.begin(epoch)
        honest.value.count += 2
        if epoch == 3:
            honest.export(0.0)
        state.commit(epoch)
    assert honest.divergence() == 4.0


class Texts(Tally):
    def backup_state(self) -> Any:
        return "text"


def test_what_is_no_state_is_refused(state: SlotState) -> None:
    with pytest.raises(BadValueError, match="lacks"):
        state.object("a", {})  # type: ignore[type-var]
    with pytest.raises(BadValueError, match="gave str"):
        state.object("b", Texts())
    state.object("c", Tally())
    state.begin(0)
    with pytest.raises(BadValueError, match="another object"):
        state.object("c", Tally())


def test_an_object_not_declared_yet_says_so(arena: Arena, reattach: Any) -> None:
    state = SlotState.open(arena)
    state.object("t", Tally())
    again: Any = SlotState.open(reattach(arena))
    with pytest.raises(BadValueError, match="no object yet"):
        _ = again["t"].value


def test_a_missing_image_is_damage_not_a_new_object(arena: Arena, reattach: Any) -> None:
    state = SlotState.open(arena)
    handle = state.object("t", Tally())
    state.begin(0)
    handle.value.count = 3
    state.commit(0)
    for path in arena.directory.iterdir():
        if ".image." in path.name:
            path.unlink()
    with pytest.raises(ArenaError, match="damaged"):
        SlotState.open(reattach(arena)).object("t", Tally())


def test_a_backup_of_another_shape_is_refused() -> None:
    state = SlotState.heap()
    state.object("t", Tally())
    state.begin_restore()
    with pytest.raises(BackupUnreadableError, match="object"):
        state.restore({"t": [pa.RecordBatch.from_pydict({"image": [b"1", b"2"]})]})


def test_without_tracking_only_the_image_is_kept() -> None:
    state = SlotState.heap(track=False)
    handle = state.object("t", Tally())
    state.begin(0)
    handle.value.count = 4
    state.commit(0)
    state.begin(1)
    handle.value.count = 5
    state.rollback()
    assert (handle.value.count, state.divergence(), state.dirty_entries()) == (4, 0.0, 0)
