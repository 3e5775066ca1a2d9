"""A small counting query over known epochs, and its truth: what most tests run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.answers import LatestPerKey
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tether.spark.query import Query

SCHEMA = "k long"


def skewed_keys(epochs: int, rows: int, keys: int, seed: int) -> list[pa.Table]:
    """Epochs of keys, low ones far more frequent."""
    random = np.random.default_rng(seed)
    return [
        pa.table({"k": (keys * random.random(rows) ** 4).astype(np.int64)}) for _ in range(epochs)
    ]


def true_counts(tables: list[pa.Table]) -> Counter[int]:
    """How often each key comes in all epochs."""
    return Counter(key for table in tables for key in table["k"].to_pylist())


def as_counts(answer: pa.Table) -> dict[int, int]:
    return dict(zip(answer["k"].to_pylist(), answer["count"].to_pylist(), strict=True))


def l1_error(answer: dict[int, int], truth: dict[int, int]) -> int:
    return sum(abs(answer.get(key, 0) - truth.get(key, 0)) for key in answer.keys() | truth.keys())


class CountingQuery:
    """Counts per key, restartable on the same directories."""

    def __init__(self, spark: SparkSession, work: Path, tables: list[pa.Table]) -> None:
        self.spark, self.work, self.truth = spark, work, true_counts(tables)
        self.epochs = write_epochs(work / "in", tables)
        self.latest = LatestPerKey(["k"])

    def start(self, tolerance: Any, *, output: Any = None, slots: int = 2, **options: Any) -> Query:
        return (
            tether.stream(read_epochs(self.spark, self.work / "in", SCHEMA))
            .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=slots)
            .start(
                output or self.latest,
                tolerance=tolerance,
                checkpoint=str(self.work / "checkpoint"),
                **{
                    "backup": str(self.work / "backup"),
                    "trigger": {"availableNow": True},
                    **options,
                },
            )
        )

    def run(self, tolerance: Any, **options: Any) -> Query:
        query = self.start(tolerance, **options)
        query.awaitTermination()
        return query

    def error(self) -> int:
        return l1_error(as_counts(self.latest.table()), self.truth)
