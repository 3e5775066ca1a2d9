"""A query on local Spark, without kills: answers, bound, story, retries, sinks, refusals."""

from __future__ import annotations

import shutil
import time

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.backup.inspect import describe_store
from tether.backup.opening import open_store
from tether.spark.tasks.cluster import SparkCluster
from tether.testing.epochs import read_epochs, write_epochs

from .counting import SCHEMA, skewed_keys, true_counts


@pytest.mark.parametrize(
    "tolerance",
    [tether.NoTolerance(), tether.Approximate(2000), tether.Approximate(0), tether.MiniBatch()],
    ids=lambda policy: f"{policy.name}-{policy.budget.max_state_error:g}",
)
def test_the_answer_is_exact_without_failures(counting, tolerance):
    query = counting.run(tolerance)
    assert counting.error() == 0
    assert query.bound().spent == 0
    assert query.totals()["rows"] > 0


def test_backups_happen_only_where_the_divergence_is_above_theta(counting):
    query = counting.run(tether.Approximate(4000))  # two slots: θ = 1000
    backups = [event for event in query.story() if event.what == "backup"]
    by_theta = [event for event in backups if event.cause == "theta"]
    assert by_theta
    for event in by_theta:
        assert event.detail["divergence_before"] > event.detail["theta"] == 1000
        assert event.detail["divergence_after"] <= 500
    assert all(slot["divergence"] <= slot["theta"] for slot in query.slots())
    told = {one["batchId"]: one["tether"] for one in query.recentProgress}
    rows = [told[epoch]["totals"]["rows"] for epoch in range(6)]
    assert rows == sorted(set(rows))
    assert [{s["epoch"] for s in told[epoch]["slots"]} for epoch in range(6)] == [
        {epoch} for epoch in range(6)
    ]
    # The newest report is of now: the flush at the end is in it.
    assert query.lastProgress["tether"]["totals"]["rows"] == rows[-1]
    assert told[5]["bound"]["at_risk"] > query.lastProgress["tether"]["bound"]["at_risk"] == 0


def test_the_batch_form_gives_the_same_answer(counting, spark):
    static = spark.read.parquet(str(counting.work / "in"))
    rows = tether.stream(static).apply(KeyedAggregate(), key="k", parallelism=3).to_df()
    assert {row.k: row["count"] for row in rows.collect()} == dict(counting.truth)


def test_complete_output_gives_every_key_in_every_epoch(spark, tmp_path):
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 2]}), pa.table({"k": [3]})])
    seen = []
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
        .apply(KeyedAggregate(emit="all"), key="k", parallelism=2)
        .start(
            lambda df, epoch: seen.append({r.k: r["count"] for r in df.collect()}),
            trigger={"availableNow": True},
        )
    )
    query.awaitTermination()
    assert seen == [{1: 1, 2: 2}, {1: 1, 2: 2, 3: 1}]


def test_a_second_action_on_the_output_does_not_count_twice(counting):
    def twice(df, epoch):
        first = sorted((row.k, row["count"]) for row in df.collect())
        assert sorted((row.k, row["count"]) for row in df.collect()) == first
        counting.latest(df, epoch)

    query = counting.run(tether.Approximate(2000), output=twice)
    assert counting.error() == 0
    assert query.bound().spent == 0


def test_a_sink_that_takes_nothing_or_part_of_its_rows_leaves_no_slot_behind(counting):
    def picky(df, epoch):
        if epoch % 3 == 1:
            df.limit(1).collect()
        elif epoch % 3 == 2:
            counting.latest(df, epoch)

    query = counting.run(tether.Approximate(2000), output=picky)
    assert all(slot["epoch"] == 5 for slot in query.slots())
    last = {row["k"]: row["count"] for row in counting.latest.table().to_pylist()}
    assert all(counting.truth[key] >= count for key, count in last.items())
    untouched = [k for k in last if counting.truth[k] == last[k]]
    assert len(untouched) > len(last) // 2


@pytest.mark.parametrize("tolerance", [tether.Approximate(10_000), tether.MiniBatch()])
def test_a_sink_that_takes_its_rows_and_then_some_of_them_again_loses_nothing(
    spark, tmp_path, tolerance
):
    """``limit`` stops the slots' tasks in the middle of an epoch that they had done before."""

    class CountAtLength(tether.Operator):
        """Counts rows, with output that is more than a task hands over before it is read."""

        output = "k long, n long, padding string"

        def setup(self, state):
            self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

        def process(self, batch, out):
            self.seen.add(batch.select(["k"]), n=1)
            rows = batch.append_column("n", pa.array([1] * batch.num_rows))
            rows = rows.append_column("padding", pa.array(["x" * 8_000] * batch.num_rows))
            for first in range(0, batch.num_rows, 250):  # two megabytes at a time
                out.emit(rows.slice(first, 250))

    tables = skewed_keys(epochs=3, rows=6000, keys=50, seed=4)
    write_epochs(tmp_path / "in", tables)

    def sink(rows, epoch):
        rows.write.format("noop").mode("append").save()
        assert len(rows.limit(1).collect()) == 1

    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
        .apply(CountAtLength(), key="k", parallelism=2)
        .start(
            sink,
            tolerance=tolerance,
            backup=str(tmp_path / "backup"),
            checkpoint=str(tmp_path / "checkpoint"),
        )
    )
    query.processAllAvailable()
    found = {row.k: row.n for row in query.table("seen").collect()}
    query.stop()
    assert found == true_counts(tables)
    assert query.bound().spent == 0
    assert not [event for event in query.story() if event.what == "recovered"]


def test_an_epoch_without_rows_runs_every_slot(spark, tmp_path):
    write_epochs(tmp_path / "in", [pa.table({"k": [1]})] * 3)
    nothing = read_epochs(spark, tmp_path / "in", SCHEMA).filter(F.lit(False))
    query = (
        tether.stream(nothing)
        .apply(KeyedAggregate(), key="k", parallelism=2)
        .start(trigger={"availableNow": True})
    )
    query.awaitTermination()
    assert [slot["epoch"] for slot in query.slots()] == [2, 2]


def test_a_stopped_query_goes_on_exactly_where_it_was(counting):
    epochs = []

    def some(df, epoch):
        epochs.append(epoch)
        counting.latest(df, epoch)

    query = counting.start(
        tether.Approximate(1e9), output=some, trigger={"processingTime": "0 seconds"}
    )
    query.processAllAvailable()
    query.stop()
    more = skewed_keys(epochs=2, rows=5000, keys=300, seed=9)
    write_epochs(counting.work / "in", more, first=counting.epochs)
    for table in more:
        counting.truth.update(table["k"].to_pylist())
    again = counting.run(tether.Approximate(1e9), output=some)
    assert epochs == list(range(8))
    assert counting.error() == 0
    recoveries = [event for event in again.story() if event.what == "recovery"]
    assert recoveries
    assert all(event.detail["exact"] for event in recoveries)
    assert again.bound().spent == 0


def test_input_already_partitioned_by_key_is_shuffled_to_its_slots_all_the_same(spark, tmp_path):
    from tether.cli.answers import LatestPerKey

    write_epochs(tmp_path / "in", [pa.table({"k": list(range(50))})] * 2)
    rows = read_epochs(spark, tmp_path / "in", SCHEMA).repartition(5, "k")
    latest = LatestPerKey(["k"])
    query = (
        tether.stream(rows)
        .apply(KeyedAggregate(), key="k", parallelism=2)
        .start(latest, trigger={"availableNow": True})
    )
    query.awaitTermination()
    assert {row["k"]: row["count"] for row in latest.table().to_pylist()} == dict.fromkeys(
        range(50), 2
    )


def test_slots_that_are_spread_anew_lose_nothing(counting, monkeypatch):
    """Executors never join in this session, so the runtime is told that they did."""
    looks = iter([False, False, True, False, True])
    monkeypatch.setattr(SparkCluster, "lopsided", lambda *_: next(looks, False))
    query = counting.run(tether.Approximate(1e9))  # so nothing is durable but by the moves
    moves = [event.epoch for event in query.story() if event.what == "respread"]
    assert moves == [2, 4]
    recoveries = [event for event in query.story() if event.what == "recovery"]
    assert [event.epoch for event in recoveries] == [2, 2, 4, 4]
    assert {(e.cause, e.detail["exact"]) for e in recoveries} == {("no resident state here", True)}
    assert counting.error() == 0
    assert query.bound().spent == 0


def test_a_table_of_the_state_can_be_read_while_the_query_runs(counting):
    query = counting.start(tether.Approximate(2000), trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    rows = query.table("totals").collect()
    assert {row.k: row["count"] for row in rows} == dict(counting.truth)
    query.stop()


def test_backups_in_an_object_store_bring_a_restarted_query_back(counting, s3_options):
    place = {"backup": f"s3://backups/{counting.work.name}", "backup_options": s3_options}
    counting.run(tether.Approximate(1000), **place)
    more = skewed_keys(epochs=1, rows=5000, keys=300, seed=8)
    write_epochs(counting.work / "in", more, first=counting.epochs)
    counting.truth.update(more[0]["k"].to_pylist())
    again = counting.run(tether.Approximate(1000), **place)
    assert [event.detail["exact"] for event in again.story() if event.what == "recovery"] == [
        True
    ] * 2
    assert counting.error() == 0


def test_times_are_keys_in_any_zone(spark, tmp_path):
    df = spark.sql("SELECT TIMESTAMP '2026-01-01 12:00:00' AS at UNION ALL SELECT NULL")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        counts = tether.stream(df).apply(KeyedAggregate(), key="at", parallelism=2).to_df()
        assert sorted(map(repr, counts.collect())) == sorted(
            map(repr, df.groupBy("at").count().collect())
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_output_can_go_to_any_spark_format(counting, spark):
    target = str(counting.work / "out")
    counting.run(tether.NoTolerance(), output=tether.to_format("parquet", path=target))
    rows = spark.read.parquet(target)
    best = {row.k: row.n for row in rows.groupBy("k").agg(F.max("count").alias("n")).collect()}
    assert best == dict(counting.truth)


def test_no_arena_is_left_behind(counting, tmp_path):
    query = counting.run(tether.Approximate(2000), arena_dir=str(tmp_path / "arenas"))
    assert query.totals()["rows"] > 0
    assert list((tmp_path / "arenas").glob("*/*")) == []


def test_a_query_stopped_in_the_middle_of_an_epoch_is_flushed_all_the_same(counting, tmp_path):
    """The stop breaks the epoch's job off with an error, which is no failure of the query."""
    at_work = tmp_path / "at work"

    def task(_):
        at_work.touch()
        time.sleep(60)

    def sink(rows, epoch):
        rows.write.format("noop").mode("append").save()
        if epoch == 2:
            rows.sparkSession.range(1).foreach(task)

    query = counting.start(tether.Approximate(1_000_000), output=sink, trigger={})
    deadline = time.monotonic() + 240
    while not at_work.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None
    assert query._supervisor.current.exception() is None, (
        "Spark took the interruption for a failure"
    )
    assert query.story()[-1].detail["flushed"]
    report = describe_store(open_store(str(counting.work / "backup")))
    assert report.frames_by_cause == {"flush": 2}
    query = counting.start(tether.Approximate(1_000_000), trigger={})
    query.processAllAvailable()
    found = {row["k"]: row["count"] for row in query.table("totals").collect()}
    assert found == counting.truth
    assert query.bound().spent == 0
    query.stop()


def test_a_slot_whose_state_is_gone_when_the_query_stops_is_told(counting, tmp_path):
    where = tmp_path / "arena"
    query = counting.start(tether.Approximate(1_000_000), trigger={}, arena_dir=str(where))
    query.processAllAvailable()
    for arena in where.glob("*/keyed_aggregate-0-*"):
        shutil.rmtree(arena)
    query.stop()
    told = [event for event in query.story() if event.what == "unflushed"]
    assert [(event.operator, event.slot) for event in told] == [("keyed_aggregate", 0)]
