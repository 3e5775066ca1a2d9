"""Spark's own reader of state, on Tether's stores: a batch, or what batches have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from tests.sql.queries import Run, write_batches
from tests.sql.test_stopping import checkpoint_format

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BATCHES = [[(0, 1, 5), (0, 2, 7)], [(0, 1, 1)], [(0, 2, 2), (0, 3, 3)]]
CHANGES = [
    (0, "update", 1, 5),
    (0, "update", 2, 7),
    (1, "update", 1, 6),
    (2, "update", 2, 9),
    (2, "update", 3, 3),
]


def read(run: Run, **options: Any) -> DataFrame:
    reader = run.spark.read.format("statestore").options(**options)
    return reader.load(str(run.folder / "checkpoint"))


def changes(run: Run, first: int, last: int) -> list[tuple[int, str, int, int | None]]:
    feed = read(run, readChangeFeed=True, changeStartBatchId=first, changeEndBatchId=last)
    rows = feed.selectExpr("batch_id", "change_type", "key.k", "value.sum").collect()
    return sorted(tuple(row) for row in rows)


def sums_of(frame: DataFrame) -> dict[int, int]:
    return {row.key.k: row.value.sum for row in frame.collect()}


@pytest.fixture(params=["1", "2"])
def exact(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Three batches with nothing to lose, in both formats of Spark's checkpoints."""
    write_batches(tmp_path, BATCHES)
    with checkpoint_format(spark, request.param):
        yield Run(spark, "sums", tmp_path).go(0)


def test_every_batch_and_what_it_changed_can_be_read(exact: Run) -> None:
    assert changes(exact, 0, 2) == CHANGES
    assert changes(exact, 1, 1) == CHANGES[2:3]
    assert sums_of(read(exact, batchId=1)) == {1: 6, 2: 7}
    found: dict[int, int] = {}
    for partition in (0, 1):
        options = {"snapshotStartBatchId": 0, "snapshotPartitionId": partition}
        found |= sums_of(read(exact, **options))
    assert found == {1: 6, 2: 9, 3: 3}


def test_a_bounded_store_tells_what_became_durable_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_batches(tmp_path, BATCHES)
    run = Run(spark, "sums", tmp_path).go(1_000_000)
    assert sums_of(read(run)) == {1: 6, 2: 9, 3: 3}
    # All that the three batches did, with the number of the last of them.
    assert changes(run, 0, 2) == [(2, "update", 1, 6), (2, "update", 2, 9), (2, "update", 3, 3)]
    with pytest.raises(Py4JJavaError, match="cannot be told apart from those before it"):
        changes(run, 2, 2)
    with pytest.raises(Py4JJavaError, match="The state after batch 1 cannot be told exactly"):
        changes(run, 0, 1)


def test_what_is_gone_is_told_as_deleted(spark: SparkSession, tmp_path: Path) -> None:
    # Batch 1 moves the watermark on, and batch 2 closes the first window.
    batches = [[(0, 1, 5)], [(100, 1, 1)], [(101, 1, 1)]]
    write_batches(tmp_path, batches)
    run = Run(spark, "windows", tmp_path).go(0)
    feed = read(run, readChangeFeed=True, changeStartBatchId=0)
    rows = feed.selectExpr("change_type", "value.sum").collect()
    assert ("delete", None) in [tuple(row) for row in rows]
