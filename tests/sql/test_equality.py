"""Without failures, Tether's store gives what Spark's own gives, batch for batch."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sql.queries import KINDS, Batches, Run, write_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def some_batches(seed: int, *, batches: int = 3, rows: int = 25) -> Batches:
    """Times move on with jitter, so some rows are late, some windows close."""
    rng = random.Random(seed)
    return [
        [
            (max(0, 20 * batch + rng.randint(-25, 20)), rng.randint(0, 6), rng.randint(0, 9))
            for _ in range(rows)
        ]
        for batch in range(batches)
    ]


SHORT = ("sums", "windows", "outer join")
"""Kinds of queries in the short form of these tests; make chaos compares all of them."""
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
EXAMPLES = int(os.environ.get("TETHER_SQL_EXAMPLES", "1"))
"""Random queries to compare; each takes seconds. More in long runs: TETHER_SQL_EXAMPLES=100."""
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def compare(spark: SparkSession, folder: Path, kind: str, batches: Batches, theta: float) -> Run:
    """Run the query on both stores; give ours."""
    for side in ("spark", "tether"):
        write_batches(folder / side, batches)
    theirs = Run(spark, kind, folder / "spark").go()
    ours = Run(spark, kind, folder / "tether").go(theta)
    assert ours.output == theirs.output
    divergences, thresholds = ours.metric("tetherDivergence"), ours.metric("tetherThreshold")
    assert all(d <= t for d, t in zip(divergences, thresholds, strict=True))
    return ours


@pytest.mark.parametrize(
    "kind",
    [kind if kind in SHORT else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS],
)
def test_every_kind_of_query_gives_what_spark_gives(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    ours = compare(spark, tmp_path, kind, some_batches(len(kind)), theta=40)
    assert sum(map(len, ours.output.values())) > 0


@pytest.mark.long
@pytest.mark.parametrize("version", ["3", "4"])
def test_joins_in_column_families_give_what_spark_gives(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    spark.conf.set(JOIN_FORMAT, version)
    try:
        ours = compare(spark, tmp_path, "outer join", some_batches(int(version)), theta=40)
    finally:
        spark.conf.unset(JOIN_FORMAT)
    assert sum(map(len, ours.output.values())) > 0


ROWS = st.lists(st.tuples(st.integers(0, 90), st.integers(-3, 3), st.integers(-5, 5)), max_size=12)


@settings(max_examples=EXAMPLES, suppress_health_check=UNCHECKED)
@given(
    kind=st.sampled_from([kind for kind in KINDS if "process" not in kind and kind != "expiring"]),
    batches=st.lists(ROWS, min_size=1, max_size=3),
    theta=st.sampled_from([0.0, 8.0, 1000.0]),
)
def test_random_queries_on_random_data_give_what_spark_gives(
    spark: SparkSession, kind: str, batches: Batches, theta: float
) -> None:
    # Stores may still be writing snapshots that nobody waits for.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        compare(spark, Path(folder), kind, batches, theta)
