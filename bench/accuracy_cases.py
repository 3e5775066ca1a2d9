"""Accuracy after whole-system failures: heavy hitters, online join and logistic regression.

Each case runs in one process (``LocalPipeline``), because ten losses of all memory in a row are what
is asked for, and only policies and state decide what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.algorithms.features import HashedFeatures
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.logistic_model import Descent
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin
from tether.data import click_log, packets
from tether.testing.local import LocalPipeline, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.policies.policy import Policy

SLOTS = 2


@dataclass(frozen=True)
class Case:
    """One algorithm on one stream."""

    name: str
    epochs: list[pa.Table]
    pipeline: Callable[[Policy], LocalPipeline]
    score: Callable[[pa.Table], dict[str, float]]
    """What the last epoch's answer is worth; percentages."""
    budgets: tuple[float, float]
    """Θ of the two settings."""
    unit: str
    paper: dict[str, float]
    """The paper's figures in the same unit: no failure, and ten at each setting."""

    def after(self, failures: int, policy: Policy) -> dict[str, Any]:
        """Run the stream with evenly spaced losses of all slots' memory; score the end."""
        pipeline = self.pipeline(policy)
        kills = np.linspace(0, len(self.epochs), failures + 2)[1:-1].astype(int)
        answer = None
        for number, rows in enumerate(self.epochs):
            if number in kills:
                pipeline.lose_all()
            answer = pipeline.run(rows)
        assert answer is not None
        return {
            **self.score(answer),
            "backups": pipeline.backups(),
            "backup_bytes": pipeline.backup_bytes(),
        }


def heavy_hitters(quick: bool, seed: int) -> Case:
    """Flows above the 4,000th part of all bytes, as the paper's 10 MB of 40 GB."""
    epochs = list(packets(40 if quick else 150, 10_000, flows=100_000, skew=1.1, seed=seed))
    rows = pa.concat_tables(epochs)
    sums = rows.group_by(["src", "dst"]).aggregate([("bytes", "sum")])
    threshold = float(rows["bytes"].to_numpy().sum()) / 4_000
    heavy = sums.filter(pa.compute.greater_equal(sums["bytes_sum"], threshold))
    true = set(zip(heavy["src"].to_pylist(), heavy["dst"].to_pylist(), strict=True))

    def pipeline(policy: Policy) -> LocalPipeline:
        local = LocalSketch(["src", "dst"], value="bytes", threshold=threshold, spread_over=SLOTS)
        return LocalPipeline(
            [Stage(local, parallelism=SLOTS), Stage(GlobalSketch(threshold=threshold))],
            tolerance=policy,
        )

    def score(answer: pa.Table) -> dict[str, float]:
        found = set(zip(answer["src"].to_pylist(), answer["dst"].to_pylist(), strict=True))
        return {
            "value": 100 * len(found & true) / len(found),
            "recall": len(found & true) / len(true),
            "heavy": len(true),
        }

    paper = {"none": 98.9, "first": 92.8, "second": 95.5}
    budgets = (threshold / 100, threshold / 1_000)
    return Case(
        "heavy hitters",
        epochs,
        pipeline,
        score,
        budgets,
        "precision, %; 1 % and 0.1 % of the threshold",
        paper,
    )


def online_join(quick: bool, seed: int) -> Case:
    """Packets of two links to the same host in the same second, a tenth of them sampled."""
    count, rows = (30, 20_000) if quick else (60, 40_000)
    epochs = []
    options: dict[str, Any] = {"flows": 3_000, "skew": 0.6, "rate": 4 * rows}
    for number, table in enumerate(packets(count, rows, seed=seed, **options)):
        is_left = np.random.default_rng([seed, number, 5]).random(rows) < 0.5
        epochs.append(table.append_column("is_left", pa.array(is_left)))
    every = pa.concat_tables(epochs)
    bins = every["dst"].to_numpy() * 1_000 + every["time"].to_numpy().astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    left = every["is_left"].to_numpy()
    truth = float(np.bincount(bins, weights=left) @ np.bincount(bins, weights=~left))

    def pipeline(policy: Policy) -> LocalPipeline:
        sample = JoinSample(["dst"], rate=0.1, time="time", value="bytes", seed=seed)
        return LocalPipeline(
            [
                Stage(sample, parallelism=SLOTS),
                Stage(RippleJoin(rate=0.1), key=["dst", "bucket"], parallelism=SLOTS),
                Stage(JoinEstimate(rate=0.1)),
            ],
            tolerance=policy,
        )

    def score(answer: pa.Table) -> dict[str, float]:
        row = answer.to_pylist()[0]
        return {
            "value": 100 * abs(row["count"] - truth) / truth,
            "covered": float(row["count_low"] <= truth <= row["count_high"]),
            "lost": row["lost"],
            "sampled": row["sampled"],
        }

    sampled = 0.1 * len(every)
    paper = {"none": 9.1, "first": 11.3, "second": 10.6}
    budgets = (sampled / 1_000, sampled / 10_000)
    unit = "relative error of COUNT, %; 0.1 % and 0.01 % of the sampled rows"
    return Case("online join", epochs, pipeline, score, budgets, unit, paper)


def logistic_regression(quick: bool, seed: int) -> Case:
    """Clicks on advertisements; the first half to learn from, as many again to test with."""
    count, rows = (24, 5_000) if quick else (60, 10_000)
    options: dict[str, Any] = {
        "users": 20_000,
        "ads": 2_000,
        "sites": 500,
        "clicks": 0.4,
        "signal": 4.0,
    }
    tables = list(click_log(count + 4, rows, seed=seed, **options))
    test = pa.concat_tables(tables[count:]).combine_chunks().to_batches()[0]
    features = HashedFeatures(["user", "ad", "site", "position"], buckets=1 << 18)

    def pipeline(policy: Policy) -> LocalPipeline:
        descent = Descent(rate=5.0, batch_size=50)
        return LocalPipeline(
            [
                Stage(LocalModel(features, descent=descent), parallelism=SLOTS),
                Stage(GlobalModel(features), feedback_to="local_model"),
            ],
            tolerance=policy,
        )

    def score(answer: pa.Table) -> dict[str, float]:
        model = model_of(features, answer.to_pylist()[-1])
        return {
            "value": 100 * model.score(test, "label"),
            "log_loss": model.log_loss(test, "label"),
        }

    # The paper's 10 and 1 are 0.01 and 0.001 a feature for its million of features.
    per_feature = features.size**0.5
    paper = {"none": 94.3, "first": 90.4, "second": 92.9}
    unit = "prediction rate, %; 0.01 and 0.001 a feature"
    budgets = (0.01 * per_feature, 0.001 * per_feature)
    return Case("logistic regression", tables[:count], pipeline, score, budgets, unit, paper)


CASES: tuple[Callable[[bool, int], Case], ...] = (heavy_hitters, online_join, logistic_regression)
