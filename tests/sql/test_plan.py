"""What a bound changes in the plan of an aggregation: neighbours instead of hash tables."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tether.sql import bounded
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def _aggregates(spark: SparkSession, folder: Path, rows: DataFrame, *, ours: bool) -> list[str]:
    """The aggregations of a query's last epoch, from the output down."""
    with bounded(spark, max_state_error=10) if ours else nullcontext():
        query: Any = (
            rows.writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(folder / f"checkpoint-{ours}"))
            .start()
        )
    try:
        query.processAllAvailable()
        plan = query._jsq.explainInternal(False)
    finally:
        query.stop()
    names = (line.lstrip(" :+-*()0123456789").split("(")[0] for line in plan.splitlines())
    return [name for name in names if name.endswith("Aggregate")]


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> DataFrame:
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 1], "v": [1, 2, 3]})] * 2)
    return read_epochs(spark, tmp_path / "in", "k bigint, v bigint")


def test_after_the_first_fold_neighbours_do(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    sums = events.groupBy("k").agg(F.sum("v"), F.avg("v"), F.count("*"))
    spared = ["SortAggregate", "SortAggregate", "HashAggregate", "HashAggregate"]
    assert _aggregates(spark, tmp_path, sums, ours=True) == spared
    assert _aggregates(spark, tmp_path, sums, ours=False) == ["HashAggregate"] * 4


def test_an_aggregate_without_a_key_is_left_alone(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    # It has an output row also where there is none of input, which neighbours could not give.
    assert "SortAggregate" not in _aggregates(spark, tmp_path, events.agg(F.sum("v")), ours=True)
