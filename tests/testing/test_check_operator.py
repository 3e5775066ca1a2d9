"""The kit accepts a right operator, and names the law that each wrong one breaks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.testing.test_check_state import Counters

from tether.operator import Loss, Operator
from tether.testing import LawBrokenError, check_operator, laws


def rows(count: int = 14, seed: int = 5) -> list[pa.RecordBatch]:
    draw = np.random.default_rng(seed)
    return [
        pa.RecordBatch.from_pydict(
            {"k": draw.integers(0, 12, 6).tolist(), "x": draw.integers(-5, 9, 6).tolist()}
        )
        for _ in range(count)
    ]


class Everything(Operator):
    """Uses every primitive."""

    def setup(self, state: Any) -> None:
        self.total = state.number("total", dtype="int64")
        self.bins = state.vector("bins", 12, divergence="l2")
        self.grid = state.matrix("grid", 3, 4, dtype="int64", divergence="max")
        self.sums = state.table("sums", {"k": pa.int64()}, {"x": "int64", "f": "uint8"})
        self.keys = state.set("keys", {"k": pa.int64()})
        self.names = state.object("names", Counters())

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        keys, values = batch.column("k"), batch.column("x")
        self.total.add(values)
        self.bins.add(keys, values)
        self.grid.add(np.asarray(keys) % 3, np.asarray(keys) % 4, values)
        self.sums.add([keys], x=values, f=1)
        self.keys.add(keys)
        self.keys.discard(pa.array([k for k in keys.to_pylist() if k % 5 == 0], pa.int64()))
        for k, x in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            name = "abc"[k % 3]
            self.names.value.counts[name] = self.names.value.counts.get(name, 0) + x

    def on_epoch_end(self, out: Any) -> None:
        out.emit({"total": [self.total.value], "keys": [len(self.keys)]})
        out.emit(self.sums.rows_to_batch(self.sums.changed()))


def test_a_right_operator_passes() -> None:
    check_operator(Everything(), rows(), schedules=8)


class Newest(Operator):
    """The last row wins, whichever that is."""

    repeats = True

    def setup(self, state: Any) -> None:
        self.newest = state.table("newest", {"k": pa.int64()}, {"x": "int64"}, starts={"x": 0})

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.newest.put([batch.column("k")], x=batch.column("x"))


class Largest(Newest):
    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.newest.maximum([batch.column("k")], x=batch.column("x"))


def test_a_promise_to_repeat_is_tried() -> None:
    check_operator(Largest(), rows(), schedules=4)
    with pytest.raises(LawBrokenError) as refused:
        check_operator(Newest(), rows(), schedules=4)
    assert refused.value.law == laws.REPEATS


class Epochs(Largest):
    """Counts how often an epoch has ended."""

    merges = True

    def setup(self, state: Any) -> None:
        super().setup(state)
        self.ended = state.number("ended", dtype="int64")

    def on_epoch_end(self, out: Any) -> None:
        self.ended.add(pa.array([1]))


class Merging(Largest):
    merges = True


def test_a_promise_that_epochs_merge_is_tried() -> None:
    check_operator(Merging(), rows(), schedules=4)
    with pytest.raises(LawBrokenError) as refused:
        check_operator(Epochs(), rows(), schedules=4)
    assert refused.value.law == laws.MERGES


class InSelf(Everything):
    """Keeps a count where no other process finds it."""

    seen = 0

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.seen += batch.num_rows
        super().process(batch, out)

    def on_epoch_end(self, out: Any) -> None:
        out.emit({"seen": [self.seen]})


class Dice(Everything):
    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.total.add(random.randint(0, 1000))


class BadObject(Everything):
    def setup(self, state: Any) -> None:
        super().setup(state)
        self.bad = state.object("bad", Stuck())

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        super().process(batch, out)
        self.bad.value.counts["a"] = self.total.value


class Stuck(Counters):
    """Cannot go back."""

    def recover_state(self, image: bytes) -> None:
        old = dict(self.counts)
        super().recover_state(image)
        self.counts |= old


class Forgets(Everything):
    """Its object leaves out of its image what another process would need."""

    def setup(self, state: Any) -> None:
        super().setup(state)
        self.bad = state.object("bad", Hidden())

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        super().process(batch, out)
        self.bad.value.hidden += 1

    def on_epoch_end(self, out: Any) -> None:
        out.emit({"hidden": [self.bad.value.hidden]})


class Hidden(Counters):
    hidden = 0


class Careless(Everything):
    def on_recover(self, loss: Loss) -> None:
        raise RuntimeError("no compensation")


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (InSelf, laws.OUTLIVES),
        (Dice, laws.REPLAY),
        (BadObject, laws.ROLLBACK),
        (Forgets, laws.OUTLIVES),
    ],
)
def test_a_wrong_operator_is_caught(mutant: Any, law: str) -> None:
    with pytest.raises(LawBrokenError) as caught:
        check_operator(mutant(), rows(), seed=2)
    assert caught.value.law == law
    assert f"seed {caught.value.seed}" in str(caught.value)


def test_a_failing_compensation_is_seen() -> None:
    with pytest.raises(RuntimeError, match="no compensation"):
        check_operator(Careless(), rows(4), schedules=1)


def test_a_primitive_that_under_reports_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from tether.state import Number

    right = Number.divergence
    monkeypatch.setattr(Number, "divergence", lambda self, exact=False: right(self) / 2)
    with pytest.raises(LawBrokenError) as caught:
        check_operator(Everything(), rows())
    assert caught.value.law in (laws.NEVER_TOO_SMALL, laws.WITHIN)
