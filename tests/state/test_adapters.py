"""River models and DataSketches sketches as state."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

from tether.core.errors import BackupUnreadableError, BadValueError
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


def clear_or(change: Any) -> Any:
    """Changes that also empty the state now and then, as windows do."""

    def changed(some: Any, draw: random.Random) -> None:
        if draw.random() < 0.3:
            some.clear()
        else:
            change(some, draw)

    return changed


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: sketch(datasketches.kll_floats_sketch(200)), feed_floats),
        (lambda: sketch(datasketches.count_min_sketch(4, 256)), feed),
        (lambda: sketch(datasketches.hll_sketch(10)), feed),
    ],
    ids=["kll", "count-min", "hll"],
)
def test_a_sketch_that_is_emptied_and_filled_again_is_another(make: Any, change: Any) -> None:
    """As many items of another window are not the same items."""
    check_state(make, clear_or(change), schedules=4)
    state = SlotState.heap()
    handle = state.object("s", make())
    state.begin(0)
    change(handle.value, random.Random(0))
    handle.export(0.0)
    handle.value.clear()
    assert handle.divergence() == 20.0
    change(handle.value, random.Random(1))
    assert handle.divergence() == 40.0
    before = handle.value.backup_state()
    state.commit(0)
    state.begin(1)
    handle.value.reset()
    state.rollback()
    assert handle.value.backup_state() == before


def test_a_sketch_of_distinct_items_tells_how_many_it_may_lack() -> None:
    """Why not the difference of the estimates: it can grow far beyond the one item that is missing."""
    missing = 34
    live, survivor = (sketch(datasketches.hll_sketch(6)) for _ in range(2))
    live.update(missing)
    assert live.state_divergence(survivor.backup_state()) == 1.0
    gap = live.get_estimate() - survivor.get_estimate()
    assert gap == pytest.approx(1.0, rel=1e-3)
    for item in set(range(3_000)) - {missing}:
        live.update(item)
        survivor.update(item)
        gap = max(gap, abs(live.get_estimate() - survivor.get_estimate()))
    assert gap > 20
    assert live.state_divergence(survivor.backup_state()) == 1.0


def test_a_union_in_place_of_a_sketch_counts_as_all_that_it_may_hold() -> None:
    state = SlotState.heap()
    handle = state.object("s", sketch(datasketches.hll_sketch(12)))
    state.begin(0)
    union = datasketches.hll_union(12)
    other = datasketches.hll_sketch(12)
    for item in range(500):
        other.update(item)
    union.update(other)
    handle.value.sketch = union.get_result()
    assert 500 <= handle.divergence() < 600
    handle.export(0.0)
    handle.value.update("more")
    assert handle.divergence() == 1.0


def test_a_model_that_is_replaced_shares_nothing_with_its_backup() -> None:
    from river import tree

    state = SlotState.heap()
    model = river_model(tree.HoeffdingTreeClassifier(), allow_pickle=True)
    handle: Any = state.object("m", model)
    state.begin(0)
    learn(handle.value, random.Random(1))
    handle.export(0.0)
    handle.value.model = tree.HoeffdingTreeClassifier()
    for _ in range(4):
        handle.value.learn_one(*example(random.Random(2)))
    assert handle.divergence() == 5 + 5
    assert copy.deepcopy(handle.value).updates == 5


def test_an_image_that_is_cut_off_is_refused() -> None:
    with pytest.raises(BackupUnreadableError, match="cut off"):
        sketch(datasketches.kll_floats_sketch(200)).recover_state(b"short")
