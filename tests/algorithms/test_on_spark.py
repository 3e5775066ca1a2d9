"""The algorithms through the public API on Spark, against the local pipeline or plain answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import tether
from tether.algorithms.features import DenseFeatures
from tether.algorithms.grep import Grep, MergedLines
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.incidents import DistinctIncidents, JamDetector, JamReport, SegmentSpeeds
from tether.algorithms.logistic_model import LogisticModel
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of, predict
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin, two_sides
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.core.errors import BadValueError
from tether.data import (
    dense_examples,
    incident_reports,
    locations,
    packets,
    requests,
    zipf_text,
)
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Rows = list[dict[str, Any]]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Rows]]:
    """Start a stream of operators; give the rows of each epoch."""

    def start(stream: Any, **options: Any) -> list[Rows]:
        seen: dict[int, Rows] = {}

        def keep(df: Any, epoch: int) -> None:
            seen[epoch] = [row.asDict() for row in df.collect()]

        query = stream.start(
            keep,
            **{
                "tolerance": tether.Approximate(1_000.0),
                "backup": str(tmp_path / "backup"),
                "checkpoint": str(tmp_path / "checkpoint"),
                "trigger": {"availableNow": True},
                **options,
            },
        )
        query.awaitTermination()
        assert query.exception() is None
        return [seen[epoch] for epoch in sorted(seen)]

    return start


@pytest.fixture
def streamed(spark: SparkSession, tmp_path: Path) -> Callable[..., Any]:
    def stream(tables: list[pa.Table], schema: str, name: str = "in") -> Any:
        write_epochs(tmp_path / name, tables)
        return read_epochs(spark, tmp_path / name, schema)

    return stream


@pytest.mark.parametrize("key", [[], ["src", "dst"]], ids=["rows as read", "folded by Spark"])
def test_heavy_hitters_as_a_stream_and_as_a_batch(
    spark: SparkSession, run: Any, streamed: Any, tmp_path: Path, key: list[str]
) -> None:
    epochs = list(packets(3, 5_000, flows=500, seed=2))
    schema = "time double, src long, dst long, bytes long"

    def found(stream: Any) -> Any:
        slots = 1 if key else 2
        local = LocalSketch(["src", "dst"], value="bytes", threshold=100_000, spread_over=slots)
        sketches = stream.apply(local, key=key, parallelism=2)
        return sketches.apply(GlobalSketch(threshold=100_000), parallelism=1)

    last = run(found(tether.stream(streamed(epochs, schema))))[-1]
    sums: Counter[tuple[int, int]] = Counter()
    for row in pa.concat_tables(epochs).to_pylist():
        sums[row["src"], row["dst"]] += row["bytes"]
    heavy = {key for key, total in sums.items() if total >= 100_000}
    answer = {(row["src"], row["dst"]): row["estimate"] for row in last}
    assert heavy <= set(answer)
    assert all(estimate >= sums[key] for key, estimate in answer.items())
    static = found(tether.stream(spark.read.schema(schema).parquet(str(tmp_path / "in"))))
    assert {(row.src, row.dst): row.estimate for row in static.to_df().collect()} == answer


def test_rows_are_counted_where_spark_folds_them(run: Any, streamed: Any) -> None:
    epochs = list(packets(2, 2_000, flows=100, seed=2))
    rows = tether.stream(streamed(epochs, "time double, src long, dst long, bytes long"))
    local = LocalSketch(["src"], threshold=150)
    sketches = rows.apply(local, key="src", parallelism=2)
    last = run(sketches.apply(GlobalSketch(threshold=150), parallelism=1))[-1]
    counts = Counter(pa.concat_tables(epochs)["src"].to_pylist())
    assert {key for key, count in counts.items() if count >= 150} <= {row["src"] for row in last}
    assert all(row["estimate"] >= counts[row["src"]] for row in last)


def test_a_negative_amount_is_refused_before_it_is_added_up(run: Any, streamed: Any) -> None:
    rows = [pa.table({"src": [1, 1], "bytes": [5, -2]})]
    local = LocalSketch(["src"], value="bytes", threshold=150)
    sketches = tether.stream(streamed(rows, "src long, bytes long")).apply(local, key="src")
    with pytest.raises(BadValueError, match="'bytes' holds nulls or negative numbers"):
        run(sketches.apply(GlobalSketch(threshold=150), parallelism=1))


def test_hopping_windows_of_heavy_hitters(run: Any, streamed: Any) -> None:
    epochs = list(packets(4, 2_000, flows=100, seed=2))
    rows = tether.stream(streamed(epochs, "time double, src long, dst long, bytes long"))
    local = LocalSketch(["src"], threshold=150, spread_over=2)
    answers = run(
        rows.apply(local, parallelism=2).apply(
            GlobalSketch(threshold=150, emit="window"), parallelism=1
        ),
        tolerance=tether.Approximate(50.0, window=tether.Hopping(2, "epochs")),
    )
    assert [bool(answer) for answer in answers] == [False, True, False, True]
    counts = Counter(pa.concat_tables(epochs[2:])["src"].to_pylist())
    heavy = {key for key, count in counts.items() if count >= 150}
    assert heavy <= {row["src"] for row in answers[3]}


@pytest.mark.parametrize("consistency", ["BSP", "SSP"])
def test_logistic_regression_learns(
    spark: SparkSession, run: Any, streamed: Any, consistency: str
) -> None:
    *epochs, test = dense_examples(6, 3_000, features=6, seed=3)
    names = [f"x{number}" for number in range(6)]
    features = DenseFeatures(names)
    rows = tether.stream(streamed(epochs, ", ".join(f"{n} double" for n in names) + ", label int"))
    local = rows.apply(LocalModel(features, report_every=1), parallelism=2)
    final = local.apply(GlobalModel(features), parallelism=1, feedback_to=local)
    model = tether.BSP() if consistency == "BSP" else tether.SSP(2)
    answers = run(final, tolerance=tether.Approximate(1.0), consistency=model)
    reported = [row for answer in answers for row in answer]
    learned = model_of(features, reported[-1])
    batch = test.to_batches()[0]
    best = [row["log_loss"] for row in reported]
    alone = LogisticModel(features)
    for table in epochs:
        alone.partial_fit(table.to_batches()[0], "label")
    assert learned.score(batch, "label") > alone.score(batch, "label") - 0.02
    assert best[-1] < best[0]
    scored = predict(spark.createDataFrame(test.to_pandas().head(50)), learned).collect()
    expected = learned.probability(batch)[:50]
    assert [row.probability for row in scored] == pytest.approx(expected.tolist())


def test_online_join(run: Any, streamed: Any) -> None:
    random = np.random.default_rng(4)
    tables = [
        [
            pa.table(
                {
                    "dst": random.integers(0, 60, 1_500),
                    "time": number * 10 + 10 * random.random(1_500),
                    "bytes": random.random(1_500),
                }
            )
            for number in range(3)
        ]
        for _ in range(2)
    ]
    schema = "dst long, time double, bytes double"
    sides = two_sides(
        *(streamed(part, schema, name) for part, name in zip(tables, "lr", strict=True))
    )
    answers = run(
        tether.stream(sides)
        .apply(JoinSample(["dst"], rate=1.0, time="time", bucket=10, value="bytes"), parallelism=2)
        .apply(RippleJoin(rate=1.0), key=["dst", "bucket"], parallelism=2)
        .apply(JoinEstimate(rate=1.0), parallelism=1)
    )
    left, right = (
        Counter(
            (dst, int(time // 10))
            for part in side
            for dst, time in zip(part["dst"].to_pylist(), part["time"].to_pylist(), strict=True)
        )
        for side in tables
    )
    assert answers[-1][0]["count"] == sum(left[key] * right[key] for key in left)


def test_top_k(run: Any, streamed: Any) -> None:
    epochs = list(requests(4, 2_000, items=60, rate=2_000, drift=5, seed=3))
    rows = tether.stream(streamed(epochs, "time double, key long"))
    counts = rows.apply(SliceCounts("key", time="time", pane=1.0), parallelism=2)
    window = counts.apply(WindowCounts(k=5, panes=2), key="key", parallelism=2)
    answers = run(window.apply(TopK(5), parallelism=1, feedback_to=window))
    truth = Counter(pa.concat_tables(epochs[2:])["key"].to_pylist())
    expected = sorted(truth.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert sorted((row["rank"], row["key"], row["n"]) for row in answers[-1]) == [
        (rank, key, n) for rank, (key, n) in enumerate(expected, start=1)
    ]


def test_incidents(run: Any, streamed: Any) -> None:
    world: dict[str, Any] = {"seconds": 10, "users": 800, "segments": 20, "every": 5, "seed": 2}
    speeds = tether.stream(
        streamed(
            list(locations(3, rate=150, **world)),
            "segment long, time long, user long, speed double",
            "locations",
        )
    ).apply(SegmentSpeeds(), parallelism=2)
    reports = tether.stream(
        streamed(
            list(incident_reports(3, **world)),
            "segment long, time long, user long, incident long",
            "reports",
        )
    ).apply(DistinctIncidents(), key="incident", parallelism=2)
    jams = speeds.union(reports).apply(
        JamDetector(window=60, slide=10, jam_speed=30.0), key="segment", parallelism=2
    )
    answers = run(jams.apply(JamReport(), parallelism=1))
    found = [row["incident"] for answer in answers for row in answer]
    assert found
    assert len(found) == len(set(found))
    assert all(row["speed"] < 30 for answer in answers for row in answer)


def test_word_count(run: Any, streamed: Any) -> None:
    epochs = list(zipf_text(2, 300, words=100, seed=1))
    lines = [line for table in epochs for line in table["value"].to_pylist()]
    rows = tether.stream(streamed(epochs, "value string"))
    counts = rows.apply(PartialCounts(), parallelism=2).apply(
        MergedCounts(), key="word", parallelism=2
    )
    latest = {row["word"]: row["count"] for answer in run(counts) for row in answer}
    assert latest == Counter(word for line in lines for word in line.split())


def test_grep(run: Any, streamed: Any) -> None:
    epochs = list(zipf_text(2, 300, words=100, seed=1))
    rows = tether.stream(streamed(epochs, "value string"))
    merged = rows.apply(Grep("bade"), parallelism=2).apply(MergedLines(), parallelism=1)
    found = [row["value"] for answer in run(merged) for row in answer]
    lines = [line for table in epochs for line in table["value"].to_pylist()]
    assert sorted(found) == sorted(line for line in lines if "bade" in line)
