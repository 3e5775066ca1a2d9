"""Rows for Kafka are told apart by run, epoch and number: without a broker."""

from __future__ import annotations

from pyspark.sql import functions as F

from tether.spark.epoch_sink import EPOCH, ROW, numbered
from tether.spark.kafka import Runs, as_records, rows_once


def test_what_is_given_again_takes_the_place_of_what_was_said_before(spark):
    runs, topic = Runs(), []

    def give(epoch, counts):
        rows = spark.createDataFrame(list(counts.items()), "page string, count long").coalesce(1)
        sink = numbered(
            lambda rows, epoch: topic.append(as_records(rows, ["page"], *runs.of(epoch))), ["page"]
        )
        sink(rows, epoch)

    give(0, {"a": 1, "b": 1, "d": 1})
    give(1, {"a": 2})
    give(2, {"c": 1, "a": 3})
    topic.append(topic[-1])  # a task that was run again
    # The query goes back to epoch 1, and finds more rows for it than the first time.
    give(1, {"c": 1, "b": 2, "a": 3})
    give(2, {"c": 2})
    records = topic[0]
    for more in topic[1:]:
        records = records.union(more)
    rows = rows_once(records, "page string, count long").collect()
    told = sorted((row.epoch, row.page, row["count"]) for row in rows)
    assert told == [
        (0, "a", 1),
        (0, "b", 1),
        (0, "d", 1),
        (1, "a", 3),
        (1, "b", 2),
        (1, "c", 1),
        (2, "c", 2),
    ]
    assert len({row.run for row in rows}) == 2


def test_a_sink_of_another_driver_begins_another_run():
    first = Runs()
    before, _ = first.of(5)
    again, since = first.of(5)
    assert (again > before, since) == (True, 5)
    assert first.of(6) == (again, 5)


def test_a_topic_of_an_earlier_version_is_its_first_run(spark):
    def records(run, page):
        row = spark.createDataFrame([(page, 7, 0)], f"page string, {EPOCH} long, {ROW} long")
        return as_records(row, [], run, 7)

    earlier = records(0, "before").withColumn(
        "headers", F.filter("headers", lambda header: header["key"].isin("epoch", "row"))
    )
    once = rows_once(earlier.union(earlier), "page string").collect()
    assert [(row.run, row.epoch, row.page) for row in once] == [(0, 7, "before")]
    again = rows_once(earlier.union(records(1, "after")), "page string").collect()
    assert [row.page for row in again] == ["after"]
