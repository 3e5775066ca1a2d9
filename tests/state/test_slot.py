from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import ArenaError, BadValueError
from tether.state import Arena, Phase, SlotState, cells, header, segment
from tether.state.header import MOST_PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Callable


def make(state: SlotState) -> Any:
    state.vector("v", 5, dtype="int64")
    state.table("t", {"k": pa.string()}, {"n": "int64"})
    return state


def test_phases(state: SlotState) -> None:
    assert (state.version, state.epoch, state.phase) == (-1, -1, Phase.CLEAN)
    assert not state.rollback()
    state.begin(0)
    assert (state.version, state.epoch, state.phase) == (-1, 0, Phase.APPLYING)
    with pytest.raises(BadValueError, match="APPLYING"):
        state.begin(1)
    with pytest.raises(BadValueError, match="Epoch 5 cannot"):
        state.commit(5)
    state.commit(0)
    assert (state.version, state.phase) == (0, Phase.COMMITTED)
    with pytest.raises(BadValueError, match="COMMITTED"):
        state.commit(0)
    assert state.rollback()
    assert (state.version, state.phase) == (-1, Phase.CLEAN)


def test_a_committed_epoch_is_rolled_back_with_its_backups(state: SlotState) -> None:
    made = make(state)
    state.begin(0)
    made["v"].add([0, 1], [10, 1])
    made["t"].add([["a", "b"]], n=[5, 6])
    state.blob = b"zero"
    state.export(8.0)
    state.commit(0)
    divergence = state.divergence()
    assert 0 < divergence <= 8.0
    state.begin(1)
    made["v"].add([0, 2], [3, 3])
    made["t"].add([["b", "c"]], n=[1, 1])
    state.export(0.0)
    state.blob = b"one"
    state.commit(1)
    assert state.divergence() == 0.0
    state.rollback()
    assert made["v"].values.tolist() == [10, 1, 0, 0, 0]
    assert made["t"].get([["a", "b", "c"]]).columns["n"].tolist() == [5, 6, 0]
    assert (state.divergence(), state.version, state.blob) == (divergence, 0, b"zero")


def test_names_mean_one_state(state: SlotState) -> None:
    vector = state.vector("v", 5)
    assert state.vector("v", 5) is vector
    assert state["v"] is vector
    with pytest.raises(BadValueError, match="size"):
        state.vector("v", 6)
    with pytest.raises(BadValueError, match="kind"):
        state.table("v", {"k": pa.int64()}, {"n": "int64"})


def test_specs_are_plain(state: SlotState) -> None:
    state.table("t", {"k": pa.string()}, {"n": "int64"}, divergence="max", weights={"n": 2})
    assert state.specs() == {
        "t": {
            "kind": "table",
            "name": "t",
            "keys": {"k": "string"},
            "values": {"n": "int64"},
            "divergence": "max",
            "weights": {"n": 2.0},
        }
    }


def test_a_new_attachment_knows_everything(
    arena: Arena, reattach: Callable[[Arena], Arena]
) -> None:
    made = make(SlotState.open(arena))
    made.begin(0)
    made["t"].add([["x", None]], n=[1, 2])
    made["v"].add([4], [9])
    made.blob = b"b"
    made.commit(0)
    again: Any = SlotState.open(reattach(arena))
    assert again.specs() == made.specs()
    assert again["t"].get([[None, "x"]]).columns["n"].tolist() == [2, 1]
    assert again["v"].values.tolist() == [0, 0, 0, 0, 9]
    assert (again.version, again.blob, again.divergence()) == (0, b"b", made.divergence())
    assert again.rollback()
    assert len(again["t"]) == 0


def test_states_made_within_an_epoch_survive_its_rollback(state: SlotState) -> None:
    state.begin(0)
    made = make(state)
    made["v"].add([1], [1])
    made["t"].add([["a"]], n=1)
    state.rollback()
    assert made["v"].values.tolist() == [0] * 5
    assert len(made["t"]) == 0
    state.begin(0)
    made["v"].add([1], [2])
    state.commit(0)
    assert made["v"].values.tolist() == [0, 2, 0, 0, 0]


def test_a_kept_attachment_sees_states_that_another_process_made(arena: Arena) -> None:
    kept = SlotState.open(arena)
    other = make(SlotState.open(arena))
    other.begin(0)
    other["v"].add([0], [1])
    other.commit(0)
    assert kept.refresh()
    assert make(kept)["v"].values.tolist() == [1, 0, 0, 0, 0]


def test_a_kept_attachment_of_a_replaced_arena_is_told(arena: Arena) -> None:
    state = make(SlotState.open(arena))
    assert state.refresh()
    arena.release()
    newer = Arena.create(arena.directory, _identity(arena))
    assert not state.refresh()
    newer.destroy()
    assert not state.refresh()


def _identity(arena: Arena) -> Any:
    from tests.state.conftest import ME

    return ME


def test_tracking_belongs_to_the_arena(arena: Arena) -> None:
    SlotState.open(arena, track=False)
    with pytest.raises(ArenaError, match="policy"):
        SlotState.open(arena, track=True)


def test_the_number_of_states_is_limited() -> None:
    state = SlotState.heap()
    for number in range(MOST_PRIMITIVES):
        state.vector(f"v{number}", 1)
    state.begin(0)
    with pytest.raises(BadValueError, match="more than"):
        state.vector("one more", 1)


def test_blobs(state: SlotState) -> None:
    assert state.blob == b""
    state.blob = b"a" * header.BLOB_BYTES
    state.begin(0)
    for text in (b"", b"b", b"c" * 100, b"d"):
        state.blob = text
        assert state.blob == text
    with pytest.raises(BadValueError, match="too large"):
        state.blob = b"a" * (header.BLOB_BYTES + 1)
    state.commit(0)
    state.blob = b"after"
    state.rollback()
    assert state.blob == b"a" * header.BLOB_BYTES


def test_stamps_start_again_when_they_are_used_up(
    state: SlotState, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tether.state import slot

    assert cells.LAST_STAMP == 2**14 - 1
    monkeypatch.setattr(slot, "LAST_STAMP", 3)
    made = make(state)
    for epoch in range(12):
        state.begin(epoch)
        made["v"].add([0], [1])
        made["t"].add([["a", f"k{epoch // 5}"]], n=1)
        if epoch % 4 == 3:
            state.rollback()
            state.begin(epoch)
            made["v"].add([0], [1])
            made["t"].add([["a", f"k{epoch // 5}"]], n=1)
        state.commit(epoch)
        assert made["v"].values[0] == epoch + 1
        assert made["t"].get([["a"]]).columns["n"].tolist() == [epoch + 1]


def test_the_target_is_spent_where_it_saves_most() -> None:
    state = SlotState.heap()
    number = state.vector("number", 1, dtype="int64")
    many = state.vector("many", 10_000, dtype="int64")
    state.begin(0)
    number.add([0], [10_000])
    many.add(None, 1)
    exports = state.export(10_000.0)
    assert exports.keys() == {"number"}
    assert state.divergence() == 10_000.0


def test_what_does_not_count_is_written_only_where_everything_is() -> None:
    state = SlotState.heap()
    counts = state.vector("counts", 4, dtype="int64", divergence="max")
    aside = state.vector("aside", 100, dtype="int64", weights={"value": 0.0})
    state.begin(0)
    counts.add(None, [1, 5, 5, 9])
    aside.add(None, 7)
    assert state.divergence(exact=True) == 9.0
    # All of the target is spent: that leaves 0 for the other, which is at 0 already.
    assert state.export(5.0).keys() == {"counts"}
    assert state.divergence(exact=True) == 5.0
    assert state.export(0.0).keys() == {"counts", "aside"}
    assert state.dirty_entries() == 0


AMOUNTS = st.lists(st.integers(-50, 50), min_size=6, max_size=6)


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.floats(0, 1.2))
def test_the_target_holds_for_all_together(
    first: list[int], second: list[int], third: list[int], share: float
) -> None:
    state = SlotState.heap()
    state.vector("a", 6, dtype="int64").describe()
    state.vector("b", 6, divergence="l2")
    state.table("c", {"k": pa.int64()}, {"n": "int64"}, divergence="max")
    made: Any = state
    state.begin(0)
    made["a"].put(None, first)
    made["b"].put(None, second)
    made["c"].put([list(range(6))], n=third)
    target = state.divergence() * share
    state.export(target)
    assert state.divergence(exact=True) <= target
    state.export(0.0)
    assert state.divergence(exact=True) == 0.0
    assert sum(p.dirty_entries() for p in (made["a"], made["b"], made["c"])) == 0


def test_restoring(arena: Arena, reattach: Callable[[Arena], Arena]) -> None:
    source = make(SlotState.heap())
    source.begin(0)
    source["v"].add(None, [1, 2, 3, 4, 5])
    source["t"].add([["a", "b"]], n=[1, 2])
    first = source.export_full()
    source["t"].add([["b", "c"]], n=[10, 20])
    second = source.export(0.0)
    target = make(SlotState.open(arena))
    with pytest.raises(BadValueError, match="CLEAN"):
        target.restore({"v": first["v"].batches})
    target.begin_restore()
    target.restore({name: export.batches for name, export in first.items()})
    for refused in (lambda: target.begin(0), target.rollback, lambda: target["v"].add([0], [1])):
        with pytest.raises(BadValueError, match="RESTORING"):
            refused()
    half = SlotState.open(reattach(arena))
    assert half.phase is Phase.RESTORING
    target.restore({name: export.batches for name, export in second.items()})
    with pytest.raises(BadValueError, match="no state"):
        target.restore({"w": []})
    target.finish_restore(7)
    assert (target.version, target.phase, target.divergence()) == (7, Phase.CLEAN, 0.0)
    assert target["v"].values.tolist() == [1, 2, 3, 4, 5]
    assert target["t"].get([["a", "b", "c"]]).columns["n"].tolist() == [1, 12, 20]
    target.begin(8)
    target["t"].add([["a"]], n=5)
    assert target.divergence() == 5.0
    target.rollback()
    assert target["t"].get([["a"]]).columns["n"].tolist() == [1]
    with pytest.raises(BadValueError, match="cannot be restored"):
        target.begin_restore()


def test_resident_bytes_follow_the_state(state: SlotState) -> None:
    made = make(state)
    small = state.resident_bytes()
    state.begin(0)
    made["t"].add([[f"key {i}" for i in range(20_000)]], n=1)
    assert state.resident_bytes() > small + 20_000 * 20


def test_no_room_in_the_middle_of_an_epoch(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file cannot grow: the epoch is undone without needing memory, and can be retried."""
    made = make(SlotState.open(arena))
    made.begin(0)
    made["t"].add([[f"{i}" for i in range(50)]], n=1)
    made.commit(0)
    keys = [f"key {i}" for i in range(3000)]
    real = segment.allocate
    for granted in range(100):
        left = granted

        def allocate(descriptor: int, start: int, stop: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "no space")
            real(descriptor, start, stop)

        monkeypatch.setattr(segment, "allocate", allocate)
        made.begin(1)
        try:
            made["t"].add([keys], n=1)
            made["t"].add([keys], n=1)
            made.export(0.0)
        except ArenaError:
            assert made.rollback()
            assert len(made["t"]) == 50
            assert made["t"].values("n").tolist() == [1] * 50
            assert made.divergence() == 50.0
        else:
            break
        finally:
            monkeypatch.undo()
    assert granted > 5
    made.commit(1)
    assert made["t"].get([keys]).columns["n"].tolist() == [2] * 3000


def test_a_missing_file_is_never_taken_for_an_empty_one(arena: Arena) -> None:
    made = make(SlotState.open(arena))
    for epoch in range(2):
        made.begin(epoch)
        made["t"].add([["a", None]], n=1)
        made["v"].add([0], [1])
        made.commit(epoch)
    files = sorted(path.name for path in arena.directory.iterdir() if path.name.startswith("p0"))
    assert len(files) > 15
    for name in files:
        (arena.directory / name).rename(arena.directory / f"p999.{name}")
        with pytest.raises(ArenaError, match="damaged"):
            SlotState.open(arena)
        (arena.directory / f"p999.{name}").rename(arena.directory / name)
    assert SlotState.open(arena).version == 1
