"""A query that ends in good order loses nothing, whatever its bound, and however it ends."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.sql.direct import Provider
from tests.sql.queries import KINDS, Run, write_batches
from tests.sql.test_equality import some_batches
from tests.sql.test_failures import FORMATS, KEYS, final_sums, many_keys, truth

from tether.sql import bound, bounded, rewind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

NEVER = 1_000_000
"""A bound so wide that nothing is backed up before the end."""
SHORT = ("sessions", "inner join")
"""Kinds of queries in the short form; make chaos restarts all of them."""


@contextmanager
def checkpoint_format(spark: SparkSession, version: str) -> Iterator[None]:
    spark.conf.set(FORMATS, version)
    try:
        yield
    finally:
        spark.conf.unset(FORMATS)


@pytest.mark.parametrize(
    "kind",
    [kind if kind in SHORT else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS],
)
def test_a_restart_after_a_good_end_changes_nothing(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    batches = some_batches(5, batches=2, rows=10)
    theirs = Run(spark, kind, tmp_path / "spark")
    ours = Run(spark, kind, tmp_path / "tether")
    for run, theta in ((theirs, None), (ours, NEVER)):
        for number in (1, 2):
            write_batches(run.folder, batches[:number])
            run.go(theta)
    assert ours.output == theirs.output
    assert sum(ours.metric("tetherRestores")) > 0
    assert ours.metric("tetherFailures")[-1] == 0


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("end", ["stop", "failure"])
def test_a_batch_that_was_cut_short_is_run_again_from_the_state_before_it(
    spark: SparkSession, tmp_path: Path, version: str, end: str
) -> None:
    # Every task has committed its state, and the driver has not: the version before is wanted.
    batches = many_keys(3)
    write_batches(tmp_path, batches)
    run = Run(spark, "sums", tmp_path)
    take = run.take

    def ending(rows: Any, batch: int) -> None:
        take(rows, batch)
        if batch == 2 and end == "failure":
            raise RuntimeError("the sink is full")
        if batch == 2:
            running.stop()

    run.take = ending  # type: ignore[method-assign]
    with checkpoint_format(spark, version), bounded(spark, NEVER):
        running = run.start(processingTime="0 seconds")
        if end == "failure":
            with pytest.raises(StreamingQueryException, match="the sink is full"):
                running.awaitTermination()
        else:
            running.awaitTermination()
        run.take = take  # type: ignore[method-assign]
        run.output.clear()
        run.go(NEVER)
    assert sorted(run.output) == [2]
    assert run.metric("tetherFailures")[-1] == 0
    true = truth(batches)
    assert final_sums(run) == {k: true[k] for _, k, _ in batches[2]}


def test_a_stop_returns_when_all_is_durable(spark: SparkSession, tmp_path: Path) -> None:
    batches = many_keys(3)
    write_batches(tmp_path, batches)
    run = Run(spark, "sums", tmp_path)
    with bounded(spark, NEVER):
        query = run.start(processingTime="0 seconds")
    query.processAllAvailable()
    (now,) = bound(query)
    assert now.at_risk == KEYS
    query.stop()
    (now,) = bound(query)
    assert now.worst_now == 0
    held = spark.read.format("statestore").load(str(tmp_path / "checkpoint")).collect()
    assert {row.key.k: row.value.sum for row in held} == truth(batches)
    assert rewind(str(tmp_path / "checkpoint")).batches_again == 0


def test_a_query_that_could_not_keep_its_state_does_not_say_that_it_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_batches(tmp_path, many_keys(1))
    run = Run(spark, "sums", tmp_path)
    with bounded(spark, NEVER):
        query = run.start(processingTime="0 seconds")
    query.processAllAvailable()
    stores = sorted((tmp_path / "checkpoint" / "state" / "0").glob("[01]"))
    for store in stores:  # no file can be made there any more
        store.rename(store.with_name(f"was {store.name}"))
        store.touch()
    query.stop()
    (now,) = bound(query)
    assert now.at_risk > 0


def test_reading_the_state_of_a_join_leaves_it_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [[(4 * n + i % 4, i % 5, i) for i in range(12)] for n in range(2)]
    write_batches(tmp_path, batches[:1])
    run = Run(spark, "inner join", tmp_path)
    run.go(NEVER, killed=True)
    checkpoint = tmp_path / "checkpoint"
    before = sorted(checkpoint.rglob("*"))
    for side in ("left", "right"):
        reader = spark.read.format("statestore").option("joinSide", side)
        assert reader.load(str(checkpoint)).count() == 0  # nothing of it is durable
    assert sorted(checkpoint.rglob("*")) == before
    # Whoever goes on is told what was lost, as without the reader.
    write_batches(tmp_path, batches)
    run.go(NEVER, killed=True)
    assert run.metric("tetherFailures")[-1] > 0
    assert run.metric("tetherBound")[-1] > 0


def test_both_versions_that_may_be_asked_for_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    provider = Provider(spark, tmp_path, NEVER)
    for version in range(3):
        store = provider.at(version)
        store.put(b"key", b"%d" % version)
        store.commit()
    provider.close()
    found = [Provider(spark, tmp_path, NEVER).at(version).everything() for version in (2, 3)]
    assert found == [{b"key": b"1"}, {b"key": b"2"}]


def test_a_store_that_another_has_taken_over_keeps_out_of_its_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = (Provider(spark, tmp_path, theta) for theta in (NEVER, 0))
    for provider, value in ((old, b"old"), (new, b"new")):
        store = provider.at(0)
        store.put(b"key", value)
        store.commit()
    old.close()
    assert Provider(spark, tmp_path, 0).at(1).everything() == {b"key": b"new"}
