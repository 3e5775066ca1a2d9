"""Queries that the matrix strikes, each with its epochs and with what can be compared of its answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tests.spark.counting import skewed_keys
from tests.spark.test_graphs import Ahead, Behind, Partial, Total

from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.features import DenseFeatures
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.logistic_regression import GlobalModel, LocalModel
from tether.algorithms.word_count import WordCount
from tether.data import dense_examples, packets

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = 7
SEED = 4


@dataclass(frozen=True)
class Workload:
    """An algorithm on known rows.

    Attributes:
        schema: Of the rows.
        tables: Makes the rows of each epoch.
        build: From a stream of them to the stream of the answer.
        slots: Slots of each operator.
        theta: Θ for the approximate policy: small enough to be in use, large enough to lose something.
        table: Table and operator whose rows are the answer; None where only the output tells.
        key: Its key columns, also of the output.
        norm: In which an approximate answer is within its bound: "l1" or "max"; None where what was
            lost does not add up (a model goes on learning), so that only its promise is checked.
    """

    schema: str
    tables: Callable[[], list[pa.Table]]
    build: Callable[[Any], Any]
    slots: dict[str, int]
    theta: float
    table: tuple[str, str] | None = None
    key: tuple[str, ...] = ()
    norm: str | None = None

    def all_slots(self) -> list[tuple[str, int]]:
        return [(operator, slot) for operator, n in self.slots.items() for slot in range(n)]


def _keys() -> list[pa.Table]:
    return skewed_keys(EPOCHS, rows=400, keys=60, seed=SEED)


def _words() -> list[pa.Table]:
    return [pa.table({"word": [f"w{key}" for key in t["k"].to_pylist()]}) for t in _keys()]


def _wide() -> list[pa.Table]:
    """So many keys that partial backups soon outweigh a whole one."""
    random = np.random.default_rng(SEED)
    return [pa.table({"k": random.integers(0, 60_000, 50_000)}) for _ in range(EPOCHS)]


def _examples() -> list[pa.Table]:
    return list(itertools.islice(dense_examples(EPOCHS, 300, features=3, seed=SEED), EPOCHS))


def _loop(rows: Any) -> Any:
    ahead = rows.apply(Ahead(), key="k", parallelism=2)
    return ahead.apply(Behind(), parallelism=1, feedback_to=ahead)


def _regression(rows: Any) -> Any:
    features = DenseFeatures(["x0", "x1", "x2"])
    local = rows.apply(LocalModel(features, report_every=1), parallelism=2)
    return local.apply(GlobalModel(features), parallelism=1, feedback_to=local)


def _hitters(rows: Any) -> Any:
    local = LocalSketch(["src"], value="bytes", threshold=20_000, spread_over=2)
    return rows.apply(local, parallelism=2).apply(GlobalSketch(threshold=20_000), parallelism=1)


WORKLOADS = {
    "counts": Workload(
        "k long",
        _keys,
        lambda rows: rows.apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2),
        {"keyed_aggregate": 2},
        theta=300,
        table=("totals", "keyed_aggregate"),
        key=("k",),
        norm="l1",
    ),
    "words": Workload(
        "word string",
        _words,
        lambda rows: rows.apply(WordCount(), key="word", parallelism=2),
        {"word_count": 2},
        theta=30,
        table=("totals", "word_count"),
        key=("word",),
        norm="max",
    ),
    "pipeline": Workload(
        "k long",
        _keys,
        lambda rows: rows.apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=3),
        {"partial": 2, "total": 3},
        theta=600,
        table=("totals", "total"),
        key=("k",),
        norm="l1",
    ),
    "loop": Workload(
        "k long",
        _keys,
        _loop,
        {"ahead": 2, "behind": 1},
        theta=4,
        table=("epochs", "behind"),
        key=("name",),
    ),
    "regression": Workload(
        "x0 double, x1 double, x2 double, label int",
        _examples,
        _regression,
        {"local_model": 2, "global_model": 1},
        theta=1.0,
    ),
    "hitters": Workload(
        "time double, src long, dst long, bytes long",
        lambda: list(packets(EPOCHS, 400, flows=60, seed=SEED)),
        _hitters,
        {"local_sketch": 2, "global_sketch": 1},
        theta=4_000,
    ),
    "wide": Workload(
        "k long",
        _wide,
        lambda rows: rows.apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2),
        {"keyed_aggregate": 2},
        theta=2_000,
        table=("totals", "keyed_aggregate"),
        key=("k",),
        norm="l1",
    ),
}
