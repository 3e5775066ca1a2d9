from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether import Approximate
from tether.algorithms.features import DenseFeatures, Features, HashedFeatures, VectorFeatures
from tether.algorithms.logistic_model import Descent, LogisticModel
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, Predict, model_of
from tether.core.errors import BadValueError
from tether.data import click_log, dense_examples
from tether.testing.local import LocalPipeline, Stage

NAMES = [f"x{number}" for number in range(8)]
DENSE = DenseFeatures(NAMES)
EXAMPLES = list(dense_examples(31, 2_000, features=8, seed=3))
TEST = EXAMPLES.pop().to_batches()[0]


def pipeline(
    features: Features = DENSE, tolerance: Any = None, *, staleness: Any = 0, **options: Any
) -> LocalPipeline:
    return LocalPipeline(
        [
            Stage(LocalModel(features, **options), parallelism=2),
            Stage(GlobalModel(features), feedback_to="local_model"),
        ],
        tolerance=tolerance,
        staleness=staleness,
    )


def by_hand(
    weights: list[float], rows: list[dict[str, Any]], rate: float, size: int
) -> list[float]:
    """Mini-batch SGD one number at a time."""
    weights = list(weights)
    for step, start in enumerate(range(0, len(rows), size), start=1):
        batch = rows[start : start + size]
        gradient = [0.0] * len(weights)
        for row in batch:
            x = [row[name] for name in NAMES] + [1.0]
            margin = sum(w * v for w, v in zip(weights, x, strict=True))
            error = 1 / (1 + np.exp(-margin)) - row["label"]
            gradient = [g + error * v / len(batch) for g, v in zip(gradient, x, strict=True)]
        weights = [w - rate / step**0.5 * g for w, g in zip(weights, gradient, strict=True)]
    return weights


def test_learning_is_stochastic_gradient_descent() -> None:
    rows = EXAMPLES[0].slice(0, 350)
    model = LogisticModel(DENSE, descent=Descent(rate=0.7, batch_size=100))
    model.partial_fit(rows.to_batches()[0], "label")
    expected = by_hand([0.0] * 9, rows.to_pylist(), 0.7, 100)
    assert model.weights.tolist() == pytest.approx(expected)
    assert model.steps == 4


def test_vectors_learn_what_columns_learn() -> None:
    batch = EXAMPLES[0].to_batches()[0]
    matrix = np.column_stack([batch[name].to_numpy() for name in NAMES])
    listed = pa.record_batch({"x": pa.array(matrix.tolist()), "label": batch["label"]})
    by_columns = LogisticModel(DENSE).partial_fit(batch, "label")
    by_vector = LogisticModel(VectorFeatures("x", 8)).partial_fit(listed, "label")
    assert by_vector.weights.tolist() == pytest.approx(by_columns.weights.tolist())


def test_hashed_categories_learn_what_one_hot_columns_learn() -> None:
    random = np.random.default_rng(5)
    kind = random.integers(0, 4, 3_000)
    label = (random.random(3_000) < np.array([0.1, 0.4, 0.6, 0.9])[kind]).astype(np.int32)
    hashed = HashedFeatures(["kind"], buckets=1 << 12)
    one = pa.record_batch({"kind": kind, "label": label})
    columns = {f"is{k}": (kind == k).astype(float) for k in range(4)}
    other = pa.record_batch({**columns, "label": label})
    sparse = LogisticModel(hashed).partial_fit(one, "label")
    dense = LogisticModel(DenseFeatures(list(columns))).partial_fit(other, "label")
    assert sparse.probability(one) == pytest.approx(dense.probability(other))


def test_array_columns_give_one_feature_per_item() -> None:
    rows = pa.record_batch({"tags": pa.array([["a", "b"], [], ["b"], None]), "label": [1, 0, 1, 0]})
    examples, good = HashedFeatures(["tags"], buckets=1 << 16).read(rows)
    assert np.diff(examples.offsets).tolist() == [2, 0, 1, 0]
    assert len(examples.places) == 3  # a, b, intercept
    assert good.all()


@pytest.mark.parametrize("staleness", [0, 3, lambda epoch: epoch % 4])
def test_the_distributed_model_learns(staleness: Any) -> None:
    answers = pipeline(staleness=staleness).run_all(EXAMPLES)
    model = model_of(DENSE, answers[-1].to_pylist()[-1])
    alone = LogisticModel(DENSE)
    for rows in EXAMPLES:
        alone.partial_fit(rows.to_batches()[0], "label")
    assert model.score(TEST, "label") > alone.score(TEST, "label") - 0.01
    changes = [answer["l1_change"].to_pylist()[-1] for answer in answers if len(answer)]
    assert np.mean(changes[-5:]) < 0.2 * changes[0]


def test_the_global_model_is_the_mean_weighted_by_rows() -> None:
    answer = pipeline(report_every=1).run(EXAMPLES[0].slice(0, 1_501)).to_pylist()[0]
    parts = [EXAMPLES[0].slice(0, 1_501).take(list(range(slot, 1_501, 2))) for slot in (0, 1)]
    alone = [
        LogisticModel(DENSE).partial_fit(part.combine_chunks().to_batches()[0], "label")
        for part in parts
    ]
    mean = sum(m.weights * len(p) for m, p in zip(alone, parts, strict=True)) / 1_501
    assert model_of(DENSE, answer).weights.tolist() == pytest.approx(mean.tolist())


def test_losses_leave_the_model_within_its_bound_and_it_goes_on_learning() -> None:
    tested = pipeline(tolerance=Approximate(2.0))
    answer = tested.run(EXAMPLES[0])
    for rows in EXAMPLES[1:]:
        if tested.epoch in (6, 12, 18):
            before = model_of(DENSE, answer.to_pylist()[-1]).weights
            tested.lose_all()
            tested.run(rows.slice(0, 0))  # slots recover, and have nothing to learn from
            slot = tested.stages["global_model"].slots[0]
            lost = np.linalg.norm(slot.state["weights"].values - before)  # type: ignore[attr-defined]
            assert 0 < lost <= 1.0
        answer = tested.run(rows)
    model = model_of(DENSE, answer.to_pylist()[-1])
    clean = model_of(DENSE, pipeline().run_all(EXAMPLES)[-1].to_pylist()[-1])
    assert model.score(TEST, "label") > clean.score(TEST, "label") - 0.01


def test_the_clock_is_not_set_back_far_by_a_loss() -> None:
    tested = pipeline(tolerance=Approximate(2.0))
    steps = []
    for rows in EXAMPLES[:20]:
        if tested.epoch == 15:
            tested.lose_all()
        steps.append(tested.run(rows)["steps"].to_pylist()[-1])
    # Θ/(2·2 operators·2 slots) doublings at most, and the epoch's own ten steps.
    assert steps[15] > steps[14] / 2**0.5


def test_staleness_is_told_and_never_above_what_is_allowed() -> None:
    def told(staleness: Any) -> list[int]:
        answers = pipeline(staleness=staleness).run_all(EXAMPLES[:12])
        return [answer["staleness"].to_pylist()[0] for answer in answers]

    assert told(0) == [0] * 12
    assert told(2) == [0, 1, *[2] * 10]
    assert max(told(lambda epoch: epoch % 4)) == 3


def test_a_lost_slot_is_not_called_stale_and_follows_the_next_model() -> None:
    tested = pipeline(tolerance=Approximate(2.0))
    lags = []
    for rows in EXAMPLES[:10]:
        if tested.epoch == 6:
            tested.lose_all()
        lags.append(tested.run(rows)["staleness"].to_pylist()[0])
    assert lags == [0] * 10


def test_reports_wait_for_enough_rows() -> None:
    tested = pipeline(report_every=2_500)
    assert [len(answer) for answer in tested.run_all(EXAMPLES[:6])] == [0, 0, 1, 0, 0, 1]


def test_hashed_clicks_are_learned() -> None:
    features = HashedFeatures(["user", "ad", "site", "position"], buckets=1 << 14)
    options: dict[str, Any] = {"users": 2_000, "ads": 200, "sites": 50, "seed": 2}
    *epochs, last = click_log(16, 5_000, **options)
    test = last.to_batches()[0]
    answers = pipeline(features, descent=Descent(rate=3.0, batch_size=50)).run_all(epochs)
    model = model_of(features, answers[-1].to_pylist()[-1])
    rate = np.mean(test["label"].to_numpy())
    base = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert model.log_loss(test, "label") < 0.95 * base


def test_predictions_come_with_the_rows() -> None:
    model = LogisticModel(DENSE).partial_fit(EXAMPLES[0].to_batches()[0], "label")
    tested = LocalPipeline([Stage(Predict(model))])
    answer = tested.run(pa.Table.from_batches([TEST]))
    assert answer["probability"].to_pylist() == pytest.approx(model.probability(TEST).tolist())
    assert answer.schema.names == [*TEST.schema.names, "probability"]


class TestBadInput:
    def spoiled(self) -> pa.Table:
        rows = EXAMPLES[0].slice(0, 1_200).to_pandas()
        rows.loc[0, "x0"] = np.nan
        rows.loc[1, "x3"] = np.inf
        rows["label"] = rows["label"].astype("Int32")
        rows.loc[2, "label"] = None
        rows.loc[3, "label"] = 7
        return pa.Table.from_pandas(rows, preserve_index=False)

    def test_rows_without_a_gradient_are_skipped_and_counted(self) -> None:
        answer = pipeline(report_every=1).run(self.spoiled()).to_pylist()[0]
        assert (answer["skipped"], answer["tuples"]) == (4, 1_196)
        assert np.isfinite(model_of(DENSE, answer).weights).all()

    def test_or_refused(self) -> None:
        with pytest.raises(BadValueError, match="2 of 600 rows have no gradient"):
            pipeline(on_bad="error").run(self.spoiled())

    def test_vectors_of_a_wrong_length_are_skipped_and_counted(self) -> None:
        rows = pa.table({"x": [[1.0, 2.0], [1.0], None, [0.5, 1.0, 3.0], [1.0, np.nan]] * 400})
        rows = rows.append_column("label", pa.array([0, 1, 1, 0, 0] * 400))
        answer = pipeline(VectorFeatures("x", 2)).run(rows).to_pylist()[0]
        assert (answer["skipped"], answer["tuples"]) == (1_600, 400)

    def test_predictions_for_them_are_null(self) -> None:
        rows = pa.table({"x": [[1.0, 2.0], [1.0]]})
        tested = LocalPipeline([Stage(Predict(LogisticModel(VectorFeatures("x", 2))))])
        assert tested.run(rows)["probability"].to_pylist() == [0.5, None]

    def test_a_model_that_runs_away_is_stopped(self) -> None:
        rows = pa.record_batch({"x": [1e300, -1e300], "label": [1, 0]})
        model = LogisticModel(DenseFeatures(["x"]), descent=Descent(rate=1e10))
        with pytest.raises(BadValueError, match="run away"), np.errstate(over="ignore"):
            model.partial_fit(rows, "label")

    @pytest.mark.parametrize(
        ("features", "message"),
        [
            (DenseFeatures(["missing"]), "missing"),
            (DenseFeatures(["word"]), "not a number"),
            (VectorFeatures("x0", 2), "not an array"),
            (HashedFeatures(["x0"]), "cannot be a key"),
        ],
    )
    def test_columns_that_do_not_fit_are_refused(self, features: Features, message: str) -> None:
        rows = pa.table({"x0": [1.5], "word": ["a"], "label": [1]})
        with pytest.raises(BadValueError, match=message):
            pipeline(features).run(rows)

    def test_a_label_of_text_is_refused(self) -> None:
        rows = pa.table({**{name: [1.0] for name in NAMES}, "label": ["yes"]})
        with pytest.raises(BadValueError, match="label"):
            pipeline().run(rows)

    def test_weights_of_other_features_are_refused(self) -> None:
        with pytest.raises(BadValueError, match="do not fit"):
            LogisticModel(DENSE, np.zeros(3))


def test_real_intrusions(data: Any) -> None:
    rows = data.intrusions().rows
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.num_rows)[:60_000])
    features = HashedFeatures(["protocol_type", "service", "flag"], buckets=1 << 12)
    test = shuffled.slice(0, 10_000).combine_chunks().to_batches()[0]
    answer = pipeline(features, descent=Descent(rate=2.0)).run_all(
        [shuffled.slice(at, 10_000) for at in range(10_000, 60_000, 10_000)]
    )[-1]
    score = model_of(features, answer.to_pylist()[-1]).score(test, "label")
    assert score > 0.95  # four of five rows are attacks
