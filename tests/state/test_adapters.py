"""River models and DataSketches sketches as state."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

from tether.core.errors import BadValueError
from tether.state import SlotState
from tether.state.river import LinearModel, PickledModel, river_model
from tether.state.sketches import sketch
from tether.testing import check_state

linear_model = pytest.importorskip("river.linear_model")
datasketches = pytest.importorskip("datasketches")


def example(draw: random.Random) -> tuple[dict[str, float], bool]:
    x = {name: draw.uniform(-1, 1) for name in draw.sample("abcdef", 3)}
    return x, sum(x.values()) > 0


def learn(model: Any, draw: random.Random) -> None:
    for _ in range(5):
        model.learn_one(*example(draw))


@pytest.mark.parametrize("kind", ["LinearRegression", "LogisticRegression", "Perceptron"])
def test_linear_models_keep_the_laws(kind: str) -> None:
    check_state(lambda: river_model(getattr(linear_model, kind)()), learn, schedules=6)


def test_a_recovered_linear_model_goes_on_as_if_nothing_had_happened() -> None:
    draw = random.Random(4)
    model = river_model(linear_model.LogisticRegression())
    learn(model, draw)
    image = model.backup_state()
    other = river_model(linear_model.LogisticRegression())
    other.recover_state(image)
    for seed in range(20):
        learn(model, random.Random(seed))
        learn(other, random.Random(seed))
        x, _ = example(draw)
        assert other.predict_proba_one(x) == model.predict_proba_one(x)
    assert other.backup_state() == model.backup_state()


def test_no_pickle_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from river import optim, tree

    for model in (
        tree.HoeffdingTreeClassifier(),
        linear_model.LinearRegression(optimizer=optim.Adam()),
        linear_model.LinearRegression(l1=0.1),
    ):
        with pytest.raises(BadValueError, match="allow_pickle"):
            river_model(model)
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "dumps", None)
    state = SlotState.heap()
    handle = state.object("m", river_model(linear_model.LinearRegression()))
    assert isinstance(handle.value, LinearModel)
    state.begin(0)
    learn(handle.value, random.Random(1))
    assert handle.export(0.0).batches
    state.rollback()
    assert handle.value.weights == {}


def test_other_models_count_updates() -> None:
    from river import tree

    state = SlotState.heap()
    model = river_model(tree.HoeffdingTreeClassifier(), allow_pickle=True)
    assert isinstance(model, PickledModel)
    handle = state.object("m", model, increasing=True)
    state.begin(0)
    learn(handle.value, random.Random(1))
    assert handle.divergence() == 5.0
    export = handle.export(1.0)
    state.commit(0)
    fresh = SlotState.heap()
    back = fresh.object(
        "m", river_model(tree.HoeffdingTreeClassifier(), allow_pickle=True), increasing=True
    )
    fresh.begin_restore()
    fresh.restore({"m": export.batches})
    fresh.finish_restore(0)
    x, _ = example(random.Random(9))
    assert back.value.predict_proba_one(x) == handle.value.predict_proba_one(x)
    assert back.value.updates == 5


def feed(some: Any, draw: random.Random) -> None:
    for _ in range(20):
        some.update(draw.randint(0, 10_000))


def feed_floats(some: Any, draw: random.Random) -> None:
    for _ in range(20):
        some.update(draw.random())


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: sketch(datasketches.kll_floats_sketch(200)), feed_floats),
        (lambda: sketch(datasketches.req_floats_sketch(12)), feed_floats),
        (lambda: sketch(datasketches.count_min_sketch(4, 256)), feed),
        (lambda: sketch(datasketches.hll_sketch(10)), feed),
        (lambda: sketch(datasketches.cpc_sketch(10)), feed),
    ],
    ids=["kll", "req", "count-min", "hll", "cpc"],
)
def test_sketches_keep_the_laws(make: Any, change: Any) -> None:
    check_state(make, change, schedules=4)


def test_a_sketch_survives_export_rollback_and_copying() -> None:
    state = SlotState.heap()
    handle = state.object("s", sketch(datasketches.kll_floats_sketch(200)))
    state.begin(0)
    feed_floats(handle.value, random.Random(0))
    assert handle.divergence() == 20.0
    median = handle.value.get_quantile(0.5)
    assert copy.deepcopy(handle.value).get_quantile(0.5) == median
    assert pickle.loads(pickle.dumps(handle.value)).get_quantile(0.5) == median
    state.commit(0)
    state.begin(1)
    feed_floats(handle.value, random.Random(1))
    state.rollback()
    assert (handle.value.n, handle.value.get_quantile(0.5)) == (20, median)


def test_what_cannot_be_updated_after_reading_is_refused() -> None:
    with pytest.raises(BadValueError, match="cannot be state"):
        sketch(datasketches.update_theta_sketch(12))
