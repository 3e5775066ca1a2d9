"""Exports settled later: at any time the divergence covers the distance to what is durable."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.state.conftest import ME
from tests.state.workload import Tally

from tether.core.errors import BadValueError
from tether.state import Arena, Phase, SlotState
from tether.testing.oracle import contents, never_too_small, recovered

VALUES = st.integers(-9, 9)
ITEMS = st.lists(st.tuples(st.integers(0, 11), VALUES), max_size=8)


def declare(state: SlotState, norm: str) -> None:
    state.number("number", weights={"value": 0.5})
    state.vector("vector", 12, divergence=norm)
    state.matrix("matrix", 3, 4, dtype="int64", divergence=norm, weights={"value": 2.0})
    state.table("table", {"k": pa.int64()}, {"n": "int64", "x": "float64"}, divergence=norm)
    state.table("flags", {"k": pa.int64()}, {"n": "int64", "f": "uint8"}, divergence=norm)
    state.table("count", {"k": pa.int64()}, {}, divergence="count")
    state.set("set", {"k": pa.int64()})
    state.object("object", Tally())


class Machine(RuleBasedStateMachine):
    norm = "l1"

    @initialize(arena=st.booleans())
    def start(self, arena: bool) -> None:
        self.directory = Path(tempfile.mkdtemp()) if arena else None
        self.arena: Any = None
        if self.directory is not None:
            self.arena = Arena.create(self.directory / "a", ME)
            self.state = SlotState.open(self.arena)
        else:
            self.state = SlotState.heap()
        self.declare(self.state)
        self.frames: list[Any] = []
        self.pending: Any = None
        self.saved: Any = None

    def declare(self, state: SlotState) -> None:
        declare(state, self.norm)

    def teardown(self) -> None:
        if getattr(self, "arena", None) is not None:
            self.arena.release()
            shutil.rmtree(self.directory)

    def applying(self) -> bool:
        return self.state.phase is Phase.APPLYING

    @precondition(lambda self: not self.applying())
    @rule()
    def begin(self) -> None:
        self.state.begin(self.state.version + 1)
        self.saved = (list(self.frames), self.pending, contents(self.state))

    @precondition(lambda self: self.applying())
    @rule()
    def commit(self) -> None:
        self.state.commit(self.state.epoch)

    @precondition(lambda self: self.state.phase is not Phase.CLEAN)
    @rule()
    def rollback(self) -> None:
        self.state.rollback()
        self.frames, self.pending, before = copy.copy(self.saved)
        assert contents(self.state) == before
        assert (self.state.pending is None) == (self.pending is None)

    @precondition(lambda self: self.applying())
    @rule(items=ITEMS, operation=st.sampled_from(["add", "put"]))
    def change(self, items: list[Any], operation: str) -> None:
        state: Any = self.state
        keys, values = [k for k, _ in items], np.array([v for _, v in items], int)
        getattr(state["vector"], operation)(keys, values / 2)
        getattr(state["matrix"], operation)([k % 3 for k in keys], [k % 4 for k in keys], values)
        array = pa.array(keys, pa.int64())
        getattr(state["table"], operation)([array], n=values, x=values / 4)
        getattr(state["flags"], operation)([array], n=values, f=np.abs(values))
        state["count"].put([array])
        state["set"].add(array) if operation == "add" else state["set"].discard(array)
        state["number"].add(values)
        state["object"].value.count += len(keys)

    @precondition(lambda self: self.applying())
    @rule(which=st.sampled_from(["table", "flags", "count", "set", "vector", "matrix", "number"]))
    def clear(self, which: str) -> None:
        state: Any = self.state
        state[which].clear()

    @precondition(lambda self: self.applying() and self.state.pending is None)
    @rule(share=st.sampled_from([0.0, 0.2, 0.7]))
    def begin_export(self, share: float) -> None:
        before = self.state.divergence(exact=True)
        target = share * before
        begun = self.state.begin_export(target)
        assert self.state.divergence(exact=True) == pytest.approx(before)  # nothing is durable yet
        if begun is not None:
            assert begun.divergence_after <= target
            self.pending = {name: export.batches for name, export in begun.exports.items()}

    @precondition(lambda self: self.applying() and self.state.pending is None)
    @rule(share=st.sampled_from([0.0, 0.2, 0.7]))
    def export(self, share: float) -> None:
        target = share * self.state.divergence(exact=True)
        exports = self.state.export(target)
        assert self.state.divergence(exact=True) <= target
        if exports:
            self.frames.append({name: export.batches for name, export in exports.items()})
        if target == 0:
            assert contents(recovered(self.declare, self.frames)) == contents(self.state)

    @precondition(lambda self: self.applying() and self.state.pending is not None)
    @rule(settled=st.integers(0, 3))
    def end_export(self, settled: int) -> None:
        pending = self.state.pending
        assert pending is not None
        with pytest.raises(BadValueError, match="written"):
            self.state.export_full()
        if settled:
            pending.settle()
            self.frames.append(self.pending)
        else:
            pending.abandon()
        self.pending = None

    @precondition(lambda self: self.arena is not None and not self.applying())
    @rule()
    def attach_anew(self) -> None:
        self.arena.release()
        self.arena = Arena.attach(self.arena.directory, ME)
        self.state = SlotState.open(self.arena)
        self.declare(self.state)

    @invariant()
    def never_too_small(self) -> None:
        if not hasattr(self, "frames"):
            return
        backup = recovered(self.declare, self.frames)
        for name in self.state.specs():
            assert never_too_small(self.state[name], backup[name]), name


def machine(norm: str) -> Any:
    return type(f"Settling_{norm}", (Machine,), {"norm": norm})


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_any_history(norm: str) -> None:
    case = machine(norm).TestCase()
    case.settings = settings(max_examples=12, stateful_step_count=25)
    case.runTest()


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
