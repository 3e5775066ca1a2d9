"""Algorithms that promise to repeat do so, and keep the other laws of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StructType

from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.grep import Grep, MergedLines
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.testing import check_operator

if TYPE_CHECKING:
    from tether.operator import Operator

LINES = [pa.RecordBatch.from_pydict({"value": ["to be", "or not", "to be"]})] * 5


def counted(names: list[str]) -> list[pa.RecordBatch]:
    """Words, each once in a batch, with numbers."""
    draw = np.random.default_rng(3)
    return [
        pa.RecordBatch.from_pydict(
            {
                "word": [f"w{at}" for at in draw.permutation(9)[:6]],
                **{name: draw.integers(0, 50, 6) for name in names},
            }
        )
        for _ in range(8)
    ]


@pytest.mark.parametrize(
    ("operator", "rows", "key"),
    [
        (PartialCounts(), LINES, []),
        (MergedCounts(), counted(["count"]), ["word"]),
        (Grep("be"), LINES, []),
        (MergedLines(), LINES, []),
        (KeyedAggregate({"total": "total"}), counted(["total", "count"]), ["word"]),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_the_promise_holds(operator: Operator, rows: list[pa.RecordBatch], key: list[str]) -> None:
    check_operator(operator, rows, key=key, schedules=5)


def test_sums_of_broken_numbers_promise_nothing() -> None:
    for kind, repeats in ((IntegerType(), True), (DoubleType(), False)):
        operator = KeyedAggregate(["x"])
        operator.bind(StructType().add("k", LongType()).add("x", kind), ["k"])
        assert operator.repeats == repeats
