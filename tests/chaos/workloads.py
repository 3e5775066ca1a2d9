"""Queries that the matrix strikes, each with its epochs and with what can be compared of its answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from tests.chaos import truths
from tests.spark.counting import skewed_keys
from tests.spark.graph_operators import Ahead, Behind, Partial, Total

from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.features import DenseFeatures
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.data import dense_examples
from tether.testing.judge import Measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 4
ROWS = 400
HEAVY = 60
BEST, PANES = 4, 3
FEATURES = DenseFeatures(["x0", "x1", "x2"])


@dataclass(frozen=True)
class Workload:
    """An algorithm on known rows.

    Attributes:
        schema: Of the rows.
        tables: Makes the rows of so many epochs.
        build: From a stream of them to the stream of the answer.
        slots: Slots of each operator.
        theta: Θ for the approximate policy: small enough to be in use, large enough to lose something.
        right: The right answer after each epoch, from the rows alone.
        given: The answers that were given, from all output: one for each epoch.
        measure: How far the two may be apart.
        table: Table and operator that hold the newest answer too; its key and value.
        columns: Of the output, after the epoch, as the truth has them.
        truth: All rows that a run without failures gives, from the rows it was given; None where
            they are more than the answer.
        rounding: Most by which right answers may differ, where floats are added in any order.
    """

    schema: str
    tables: Callable[[int], list[pa.Table]]
    build: Callable[[Any], Any]
    slots: dict[str, int]
    theta: float
    right: Callable[[list[pa.Table]], list[Any]]
    given: Callable[[list[dict[str, Any]], int], list[Any]]
    measure: Measure
    table: tuple[str, str, str, str] | None = None
    columns: tuple[str, ...] = ()
    truth: Callable[[list[pa.Table]], truths.Bag] | None = None
    rounding: float = 0.0

    def all_slots(self) -> list[tuple[str, int]]:
        return [(operator, slot) for operator, n in self.slots.items() for slot in range(n)]

    def held(self, rows: list[dict[str, Any]]) -> Any:
        """The answer that the rows of its table are."""
        assert self.table is not None
        _, _, key, value = self.table
        return {"": {row[key]: row[value] for row in rows}}

    def check(self, tables: list[pa.Table], output: list[dict[str, Any]]) -> None:
        """Every epoch's rows are there, each once, and no others."""
        if self.truth is not None:
            names = ("epoch", *self.columns)
            assert Counter(tuple(row[n] for n in names) for row in output) == self.truth(tables)


def written(out: Path) -> list[dict[str, Any]]:
    """All rows of a sink of epochs, each with its epoch."""
    rows = ds.dataset(out, partitioning="hive", exclude_invalid_files=True).to_table()
    return list(rows.to_pylist())


def _keys(epochs: int) -> list[pa.Table]:
    return skewed_keys(epochs, rows=ROWS, keys=60, seed=SEED)


def _timed_keys(epochs: int) -> list[pa.Table]:
    """An epoch is a second."""
    return [
        table.append_column("time", pa.array([epoch + 0.5] * table.num_rows))
        for epoch, table in enumerate(_keys(epochs))
    ]


def _lines(epochs: int) -> list[pa.Table]:
    made = []
    for table in _keys(epochs):
        words = [f"word{key}" for key in table["k"].to_pylist()]
        made.append(pa.table({"value": [" ".join(words[at : at + 5]) for at in range(0, ROWS, 5)]}))
    return made


def _wide(epochs: int) -> list[pa.Table]:
    """So many keys that partial backups soon outweigh a whole one."""
    random = np.random.default_rng(SEED)
    return [pa.table({"k": random.integers(0, 60_000, 50_000)}) for _ in range(epochs)]


def _examples(epochs: int) -> list[pa.Table]:
    """Rows of two parts, which Spark's hash puts into two slots."""
    return [
        table.append_column("part", pa.array(1 + np.arange(table.num_rows) % 2))
        for table in dense_examples(epochs, 300, features=3, seed=SEED)
    ]


def _weights(output: list[dict[str, Any]], epochs: int) -> list[Any]:
    found = {row["epoch"]: model_of(FEATURES, row).weights for row in output}
    return [{"": dict(enumerate(found[epoch].tolist()))} for epoch in range(epochs)]


def _count(rows: Any) -> Any:
    return rows.apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2)


def _count_words(rows: Any) -> Any:
    parts = rows.apply(PartialCounts(), parallelism=2)
    return parts.apply(MergedCounts(), key="word", parallelism=2)


def _loop(rows: Any) -> Any:
    ahead = rows.apply(Ahead(), key="k", parallelism=2)
    return ahead.apply(Behind(), parallelism=1, feedback_to=ahead)


def _regression(rows: Any) -> Any:
    local = rows.apply(LocalModel(FEATURES, report_every=1), key="part", parallelism=2)
    return local.apply(GlobalModel(FEATURES), parallelism=1, feedback_to=local)


def _hitters(rows: Any) -> Any:
    local = LocalSketch(["k"], threshold=HEAVY, spread_over=2)
    return rows.apply(local, parallelism=2).apply(GlobalSketch(threshold=HEAVY), parallelism=1)


def _rank(rows: Any) -> Any:
    counts = rows.apply(SliceCounts("k", time="time", pane=1.0), parallelism=2)
    window = counts.apply(WindowCounts(k=BEST, panes=PANES), key="k", parallelism=2)
    return window.apply(TopK(BEST), parallelism=1, feedback_to=window)


def _counts(tables: Callable[[int], list[pa.Table]], theta: float) -> Workload:
    return Workload(
        "k long",
        tables,
        _count,
        {"keyed_aggregate": 2},
        theta=theta,
        right=truths.true_totals(truths.keys_of),
        given=truths.newest("k", "count"),
        measure=Measure("l1"),
        table=("totals", "keyed_aggregate", "k", "count"),
        columns=("k", "count"),
        truth=truths.counted(truths.keys_of),
    )


WORKLOADS = {
    "counts": _counts(_keys, theta=300),
    "words": Workload(
        "value string",
        _lines,
        _count_words,
        {"partial_counts": 2, "merged_counts": 2},
        theta=30,
        right=truths.true_totals(truths.words_of),
        given=truths.newest("word", "count"),
        measure=Measure("max"),
        table=("words", "merged_counts", "word", "count"),
        columns=("word", "count"),
        truth=truths.counted(truths.words_of),
    ),
    "pipeline": Workload(
        "k long",
        _keys,
        lambda rows: rows.apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=3),
        {"partial": 2, "total": 3},
        theta=600,
        right=truths.true_totals(truths.keys_of),
        given=truths.newest("k", "n"),
        measure=Measure("l1"),
        table=("totals", "total", "k", "n"),
        columns=("k", "n"),
        truth=truths.counted(truths.keys_of),
    ),
    "loop": Workload(
        "k long",
        _keys,
        _loop,
        {"ahead": 2, "behind": 1},
        theta=4,
        right=truths.true_models,
        given=truths.models,
        measure=Measure("max"),
        columns=("model",),
        truth=truths.fed_back,
    ),
    "regression": Workload(
        "x0 double, x1 double, x2 double, label int, part long",
        _examples,
        _regression,
        {"local_model": 2, "global_model": 1},
        theta=1.0,
        right=truths.true_weights,
        given=_weights,
        measure=Measure("l2"),
        rounding=1e-9,
    ),
    "hitters": Workload(
        "k long",
        _keys,
        _hitters,
        {"local_sketch": 2, "global_sketch": 1},
        theta=200,
        right=truths.true_heavy(HEAVY),
        given=truths.of_each_epoch("k", "estimate"),
        measure=Measure("max", absent=HEAVY),
        columns=("k", "estimate", "surplus"),
        truth=truths.heavy(HEAVY),
    ),
    "top-k": Workload(
        "k long, time double",
        _timed_keys,
        _rank,
        {"slice_counts": 2, "window_counts": 2, "top_k": 1},
        theta=200,
        right=truths.true_best(BEST, PANES),
        given=truths.of_each_epoch("rank", "n"),
        measure=Measure("l1"),
        columns=("k", "n", "rank"),
        truth=truths.best(BEST, PANES),
    ),
    "wide": _counts(_wide, theta=2_000),
}
