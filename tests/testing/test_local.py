from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether import (
    Approximate,
    Barrier,
    Loss,
    MiniBatch,
    NoTolerance,
    Operator,
    UpstreamBackup,
)
from tether.core.errors import BadValueError, OutputSchemaError
from tether.core.windows import Hopping
from tether.sources.ddl import arrow_schema
from tether.testing.local import LocalPipeline, Stage, slot_of


class Counts(Operator):
    output = "k bigint, n bigint"

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.windows: list[tuple[float, float]] = []

    def setup(self, state: Any) -> None:
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.seen.add(batch.select(["k"]), n=1)
        if batch["k"].to_numpy().max() == 666:
            raise RuntimeError("a bad row")

    def on_epoch_end(self, out: Any) -> None:
        out.emit(self.seen.rows_to_batch(self.seen.changed()))

    def on_recover(self, loss: Loss) -> None:
        self.losses.append(loss)

    def on_window_end(self, window: Any, out: Any) -> None:
        self.windows.append((window.start, window.end))
        self.seen.clear()


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_an_error_rolls_the_slot_back() -> None:
    tested = LocalPipeline([Stage(Counts())])
    tested.run(rows(1, 1))
    with pytest.raises(RuntimeError, match="bad row"):
        tested.run(rows(1, 666))
    assert tested.run(rows(1)).to_pylist() == [{"k": 1, "n": 3}]


@given(
    keys=st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=12),
    kills=st.sets(st.integers(1, 11)),
    budget=st.sampled_from([0.0, 3.0, 20.0]),
)
def test_losses_together_stay_within_the_budget(
    keys: list[list[int]], kills: set[int], budget: float
) -> None:
    tested = LocalPipeline(
        [Stage(Counts(), key=["k"], parallelism=2)], tolerance=Approximate(budget)
    )
    for number, some in enumerate(keys):
        if number in kills:
            tested.lose_all()
        tested.run(rows(*some))
    slots = tested.stages["counts"].slots
    held = sum(int(slot.state["seen"].values("n").sum()) for slot in slots)  # type: ignore[attr-defined]
    truth = sum(map(len, keys))
    assert truth - budget <= held <= truth


def test_a_loss_is_told_once_with_its_bound() -> None:
    tested = LocalPipeline([Stage(Counts())], tolerance=Approximate(10.0))
    tested.run(rows(1, 2, 3))
    tested.lose("counts", 0)
    tested.run(rows(1))
    tested.run(rows(1))
    (loss,) = tested.stages["counts"].slots[0].operator.losses  # type: ignore[attr-defined]
    assert (loss.epoch, loss.failures, loss.bound, loss.theta) == (1, 1, 3.0, 2.5)  # θ was 5


def test_nothing_is_lost_when_all_was_durable() -> None:
    tested = LocalPipeline([Stage(Counts())], tolerance=MiniBatch())
    tested.run(rows(1, 2, 3))
    tested.lose("counts", 0)
    assert tested.run(rows(1)).to_pylist() == [{"k": 1, "n": 2}]
    assert tested.stages["counts"].slots[0].failures == 0


@pytest.mark.parametrize(
    "policy", [MiniBatch(), UpstreamBackup(0.4), Barrier(2), Barrier(3, mode="sync")], ids=str
)
def test_exact_policies_lose_nothing(policy: Any) -> None:
    tested = LocalPipeline(
        [Stage(Counts(), key=["k"], parallelism=3), Stage(Again(), key=["k"], parallelism=2)],
        tolerance=policy,
    )
    for number in range(8):
        if number in (1, 2, 5):
            tested.lose("counts", number % 3)
        if number in (2, 6):
            tested.lose("again", number % 2)
        if number == 7:
            tested.lose_all()
        given = tested.run(rows(*range(number + 1)))
    # Key k came in every epoch from k on; the second operator was told of it as often.
    assert dict(zip(given["k"].to_pylist(), given["n"].to_pylist(), strict=True)) == {
        key: 8 - key for key in range(8)
    }
    assert tested.bound().spent == 0


def test_silent_slots_are_lost_while_the_others_go_on() -> None:
    tested = LocalPipeline([Stage(Counts(), key=["k"], parallelism=2)])
    homes = slot_of(rows(*range(6)), ["k"], 2)
    tested.silence([("counts", 0)])
    assert set(tested.run(rows(*range(6)))["k"].to_pylist()) == set(np.flatnonzero(homes == 1))
    tested.silence([])
    assert sorted(tested.run(rows(*range(6)))["n"].to_pylist()) == sorted(1 + homes)
    assert tested.bound().spent == math.inf


def test_without_tolerance_a_lost_slot_starts_empty() -> None:
    tested = LocalPipeline([Stage(Counts())], tolerance=NoTolerance())
    tested.run(rows(1, 1, 1))
    tested.lose("counts", 0)
    assert tested.run(rows(1)).to_pylist() == [{"k": 1, "n": 1}]


def test_windows_end_after_so_many_epochs() -> None:
    tested = LocalPipeline(
        [Stage(Counts())], tolerance=Approximate(10.0, window=Hopping(2, "epochs"))
    )
    answers = [tested.run(rows(1)).to_pylist()[0]["n"] for _ in range(5)]
    assert answers == [1, 2, 1, 2, 1]
    assert tested.stages["counts"].slots[0].operator.windows == [(0, 2), (2, 4)]  # type: ignore[attr-defined]


class Again(Operator):
    """Counts the rows that it is sent, and sends its counts on."""

    output = "k bigint, n bigint"

    def setup(self, state: Any) -> None:
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.seen.add(batch.select(["k"]), n=1)

    def on_epoch_end(self, out: Any) -> None:
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class Follower(Operator):
    output = "heard bigint"

    def setup(self, state: Any) -> None:
        self.newest = state.vector("newest", 1)

    def on_feedback(self, items: pa.RecordBatch, out: Any) -> None:
        self.newest.put([0], [items["epoch"][-1].as_py()])

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        out.emit({"heard": [int(self.newest.values[0])]})


class Leader(Operator):
    output = "heard bigint"
    feedback = "epoch bigint"

    def setup(self, state: Any) -> None:
        self.epoch = state.vector("epoch", 1)

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        out.emit(batch)

    def on_epoch_end(self, out: Any) -> None:
        self.epoch.add([0], 1)
        out.feedback({"epoch": [int(self.epoch.values[0])]})


@pytest.mark.parametrize(
    ("staleness", "heard"),
    [(0, [0, 1, 2, 3, 4]), (2, [0, 0, 0, 1, 2]), (lambda epoch: epoch % 2, [0, 0, 2, 2, 4])],
)
def test_feedback_comes_with_a_later_epoch(staleness: Any, heard: list[int]) -> None:
    tested = LocalPipeline(
        [Stage(Follower()), Stage(Leader(), feedback_to="follower")], staleness=staleness
    )
    assert [tested.run(rows(1))["heard"][0].as_py() for _ in range(5)] == heard
    assert all(used < epoch for epoch, _, used in tested.feedback_used)


def test_undeclared_feedback_and_wrong_columns_are_refused() -> None:
    class Talker(Operator):
        output = "k bigint"

        def process(self, batch: pa.RecordBatch, out: Any) -> None:
            out.feedback({"k": [1]})

    class Wrong(Operator):
        output = "other bigint"

        def process(self, batch: pa.RecordBatch, out: Any) -> None:
            out.emit(batch)

    with pytest.raises(OutputSchemaError, match="no feedback schema"):
        LocalPipeline([Stage(Talker())]).run(rows(1))
    with pytest.raises(OutputSchemaError):
        LocalPipeline([Stage(Wrong())]).run(rows(1))


def test_a_pipeline_needs_operators_of_different_names() -> None:
    with pytest.raises(BadValueError, match="one name"):
        LocalPipeline([Stage(Counts()), Stage(Counts())])
    with pytest.raises(BadValueError, match="needs an operator"):
        LocalPipeline([])


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1), st.integers(1, 7))
def test_equal_keys_share_a_slot(keys: list[str | None], slots: int) -> None:
    homes = slot_of(pa.table({"k": pa.array(keys, pa.string())}), ["k"], slots)
    assert ((homes >= 0) & (homes < slots)).all()
    by_key: dict[str | None, set[int]] = {}
    for key, home in zip(keys, homes.tolist(), strict=True):
        by_key.setdefault(key, set()).add(home)
    assert all(len(places) == 1 for places in by_key.values())


def test_keys_spread_over_all_slots() -> None:
    homes = slot_of(pa.table({"k": np.arange(1_000)}), ["k"], 4)
    assert np.bincount(homes, minlength=4).min() > 180


def test_schemas_in_short_form() -> None:
    schema = arrow_schema("a int, `odd name` array<double>, b string NOT NULL, c: timestamp")
    assert schema.names == ["a", "odd name", "b", "c"]
    assert schema.field("odd name").type == pa.list_(pa.float64())
    assert not schema.field("b").nullable
    with pytest.raises(BadValueError, match="map"):
        arrow_schema("a map<int,int>")
