"""Any history of changes, epochs, failures and backups agrees with a dict."""

from __future__ import annotations

import math
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.state.conftest import ME
from tests.state.model import TableModel, check_divergence, contents

from tether.state import Arena, Phase, SlotState, Table
from tether.testing.oracle import distance

KEYS = st.one_of(st.none(), st.integers(-5, 60), st.integers(-(2**63), 2**63 - 1))
COUNTS = st.integers(-1000, 1000)
FLOATS = st.integers(-(10**6), 10**6).map(lambda x: x / 64)  # their sums are exact in any order
ITEMS = st.lists(st.tuples(KEYS, COUNTS, FLOATS), max_size=12)
STARTS = {"n": 7, "x": -3.25}


class Machine(RuleBasedStateMachine):
    norm = "l1"
    weights: ClassVar[dict[str, float]] = {}

    @initialize(arena=st.booleans())
    def start(self, arena: bool) -> None:
        self.directory: Path | None = Path(tempfile.mkdtemp()) if arena else None
        self.arena: Any = None
        if self.directory is not None:
            self.arena = Arena.create(self.directory / "a", ME)
            self.open()
        else:
            self.state = SlotState.heap()
            self.table = self.make(self.state)
        self.model = TableModel(STARTS)
        self.epoch = -1

    def make(self, state: SlotState) -> Table:
        return state.table(
            "t",
            {"k": pa.int64()},
            {"n": "int64", "x": "float64"},
            divergence=self.norm,
            weights=self.weights,
            starts=STARTS,
        )

    def open(self) -> None:
        self.state = SlotState.open(self.arena)
        self.table = self.make(self.state)

    def teardown(self) -> None:
        if getattr(self, "directory", None):
            self.arena.release()
            shutil.rmtree(self.directory)

    def applying(self) -> bool:
        return self.state.phase is Phase.APPLYING

    @precondition(lambda self: not self.applying())
    @rule()
    def begin(self) -> None:
        self.epoch = self.state.version + 1
        self.state.begin(self.epoch)
        self.model.begin()

    @precondition(lambda self: self.applying())
    @rule()
    def commit(self) -> None:
        self.state.commit(self.epoch)
        assert self.state.version == self.epoch

    @precondition(lambda self: self.state.phase is not Phase.CLEAN)
    @rule()
    def rollback(self) -> None:
        assert self.state.rollback()
        assert not self.state.rollback()
        self.model.rollback()
        assert self.state.version == self.epoch - 1

    @precondition(lambda self: self.applying())
    @rule(
        operation=st.sampled_from(["add", "put", "maximum", "minimum"]),
        items=ITEMS,
        which=st.sampled_from(["n", "x", "nx"]),
    )
    def change(self, operation: str, items: list[Any], which: str) -> None:
        keys = [key for key, _, _ in items]
        columns = {"n": [n for _, n, _ in items], "x": [x for _, _, x in items]}
        columns = {name: values for name, values in columns.items() if name in which}
        method = getattr(self.table, operation)
        rows = method([pa.array(keys, pa.int64())], **columns)
        self.model.change(operation, keys, **columns)
        assert self.table.rows_to_batch(rows).column("k").to_pylist() == keys

    @precondition(lambda self: self.applying())
    @rule(items=ITEMS)
    def add_unique(self, items: list[Any]) -> None:
        distinct = {key: n for key, n, _ in items}
        keys = pa.array(distinct, pa.int64())
        self.table.add([keys], unique=True, n=list(distinct.values()))
        self.model.change("add", distinct, n=list(distinct.values()))

    @precondition(lambda self: self.applying())
    @rule(share=st.floats(0, 1), full=st.integers(0, 9))
    def export(self, share: float, full: int) -> None:
        target = 0.0 if share < 0.2 else share * self.table.divergence()
        export = self.table.export_full() if full == 0 else self.table.export(target)
        assert export.divergence_after <= target
        assert sum(batch.num_rows for batch in export.batches) == export.entries
        if not export.full:
            for row in (row for batch in export.batches for row in batch.to_pylist()):
                assert self.model.durable.get(row.pop("k")) != row
        self.model.exported(export)

    @precondition(lambda self: self.applying())
    @rule(chance=st.integers(0, 3))
    def clear(self, chance: int) -> None:
        if chance == 0:
            self.table.clear()
            self.model.clear()

    @precondition(lambda self: self.arena is not None)
    @rule()
    def attach_anew(self) -> None:
        self.arena.release()
        self.arena = Arena.attach(self.arena.directory, ME)
        self.open()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        assert contents(self.table) == self.model.live
        found = self.table.get([[*self.model.live, 123456]])
        assert found.found.tolist() == [True] * len(self.model.live) + [123456 in self.model.live]
        if self.state.phase is not Phase.CLEAN:
            changed = self.table.rows_to_batch(self.table.changed()).column("k").to_pylist()
            assert set(changed) == self.model.touched
            assert len(changed) == len(set(changed))

    @invariant()
    def divergence_is_right(self) -> None:
        if not hasattr(self, "model"):
            return
        reported = self.table.divergence(exact=True)
        bound = self.table.divergence()
        assert bound >= reported
        exact = distance(self.table.spec, self.model.live, self.model.durable)
        assert isinstance(exact, Fraction)
        if self.model.stale:  # an upper bound until the next full export
            assert reported**2 >= exact if self.norm == "l2" else reported >= exact
        else:
            check_divergence(reported, exact, self.norm, whole=self.norm == "count")
        if self.norm != "max":
            assert bound == reported or math.isclose(bound, reported)

    @invariant()
    def frames_restore_what_is_durable(self) -> None:
        if not hasattr(self, "model"):
            return
        fresh = SlotState.heap()
        table = self.make(fresh)
        fresh.begin_restore()
        for frame in self.model.frames:
            fresh.restore({"t": frame})
        fresh.finish_restore(5)
        assert contents(table) == self.model.durable
        assert table.divergence(exact=True) == 0.0


def machine(norm: str, **weights: float) -> type[Machine]:
    return type(f"Machine_{norm}", (Machine,), {"norm": norm, "weights": weights})


CASES = {
    "l1": machine("l1"),
    "l1-weighted": machine("l1", n=0.25, x=3.0),
    "l1-one-column": machine("l1", x=0.0),
    "l2": machine("l2"),
    "max": machine("max", x=2.0),
    "count": machine("count"),
}


@pytest.mark.parametrize("name", CASES)
def test_any_history(name: str) -> None:
    case = CASES[name].TestCase()
    case.settings = settings(max_examples=15, stateful_step_count=25)
    case.runTest()
