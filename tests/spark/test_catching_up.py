"""After a loss under barrier snapshots only those slots go back that must; the rest, and sinks, wait."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.engine.query.rewinder import Rewinder
from tether.spark.graph.exactness import same_again
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.injector import Injector

from .counting import skewed_keys, true_counts
from .graph_operators import Partial, Total

EPOCHS = 6
SNAPSHOT, LOST = 3, 5
"""Epochs between snapshots, and the epoch before which state is lost."""

# Spark's workers do not have the tests on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class SamePartial(Partial):
    repeats = True


class SameTotal(Total):
    repeats = True


class Run:
    """One query over files, whose sink notes what it was given and when."""

    def __init__(self, spark, work: Path) -> None:
        self.spark, self.work = spark, work
        self.tables = skewed_keys(EPOCHS, rows=200, keys=40, seed=5)
        self.injector = Injector(work / "strikes")
        self.given: list[int] = []
        self.counts: dict[int, int] = {}
        (work / "in").mkdir()

    def rows(self):
        return tether.stream(read_epochs(self.spark, self.work / "in", "k long"))

    def lose(self, operator, slot, epoch=LOST):
        return self.injector.at(
            "before-attach", "forget", operator=operator, slot=slot, epoch=epoch
        )

    def start(self, stream):
        def sink(rows, epoch):
            found = rows.collect()
            self.given.append(epoch)
            self.counts.update({row[0]: row[1] for row in found})

        return stream.start(
            sink,
            tolerance=tether.Barrier(SNAPSHOT, mode="sync"),
            backup=str(self.work / "backup"),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=self.injector.faults,
        )

    def finish(self, stream):
        """Run to the end; give what was told of each rewind: slots that went back, and that stayed."""
        write_epochs(self.work / "in", self.tables)
        query = self.start(stream)
        query.processAllAvailable()
        told = [event.detail for event in query.story() if event.what == "rewound"]
        self.recovered = Counter(
            (event.operator, event.slot) for event in query.story() if event.what == "recovery"
        )
        assert self.counts == true_counts(self.tables)
        query.stop()
        return [(detail["slots"], detail["stayed"]) for detail in told]


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


def test_only_the_lost_slot_goes_back_and_no_output_is_given_twice(run):
    run.lose("keyed_aggregate", 1)
    stream = run.rows().apply(KeyedAggregate(), key="k", parallelism=3)
    assert run.finish(stream) == [(1, 2)]
    assert run.given == list(range(EPOCHS))
    assert run.recovered == {("keyed_aggregate", 1): 1}
    # The next snapshot holds those that stayed and those that went back as of one epoch.
    query = run.start(run.rows().apply(KeyedAggregate(), key="k", parallelism=3))
    write_epochs(run.work / "in", [pa.table({"k": [1, 2, 3]})], first=EPOCHS)
    query.processAllAvailable()
    assert run.counts == true_counts([*run.tables, pa.table({"k": [1, 2, 3]})])
    query.stop()


@pytest.mark.parametrize(
    ("lost", "told", "recovered"),
    [
        # Without a key rows may come to other slots of the operator: all of them go back.
        pytest.param(
            ("same_partial", 0),
            (2, 3),
            [("same_partial", 0), ("same_partial", 1)],
            marks=pytest.mark.long,
        ),
        # Whoever sends to it must make its items again.
        (
            ("same_total", 2),
            (3, 2),
            [("same_partial", 0), ("same_partial", 1), ("same_total", 2)],
        ),
    ],
)
def test_those_before_a_lost_slot_go_back_those_behind_it_stay(run, lost, told, recovered):
    run.lose(*lost)
    partial = run.rows().apply(SamePartial(), parallelism=2)
    assert run.finish(partial.apply(SameTotal(), key="k", parallelism=3)) == [told]
    assert sorted(run.recovered) == recovered
    assert run.given == list(range(EPOCHS))


@pytest.mark.long
def test_all_go_back_where_one_promises_nothing(run):
    run.lose("total", 2)
    partial = run.rows().apply(SamePartial(), parallelism=2)
    assert run.finish(partial.apply(Total(), key="k", parallelism=3)) == [(5, 0)]
    assert Counter(run.given)[LOST - 1] == 2  # by a sink that cannot take back what it has


@pytest.mark.long
def test_a_second_loss_on_the_way_takes_all_back(run, monkeypatch):
    run.lose("keyed_aggregate", 1)
    stays = run.lose("keyed_aggregate", 0, epoch=0)
    Path(stays.marker).touch()  # not yet
    rewind = Rewinder.rewind

    def lose_another(rewinder, *args):
        rewind(rewinder, *args)
        Path(stays.marker).unlink(missing_ok=True)

    monkeypatch.setattr(Rewinder, "rewind", lose_another)
    stream = run.rows().apply(KeyedAggregate(), key="k", parallelism=3)
    assert run.finish(stream) == [(1, 2), (3, 0)]


@pytest.mark.long
def test_all_go_back_where_the_stream_is_cut_into_other_epochs(run):
    """A source without a limit gives all that there is in one epoch when it is read again."""
    run.lose("keyed_aggregate", 1, epoch=LOST + 1)
    run.lose("keyed_aggregate", 2, epoch=LOST + 2)
    run.tables += skewed_keys(3, rows=50, keys=9, seed=6)
    rows = run.spark.readStream.schema("k long").parquet(str(run.work / "in"))
    query = run.start(tether.stream(rows).apply(KeyedAggregate(), key="k", parallelism=3))
    for number, table in enumerate(run.tables):
        write_epochs(run.work / "in", [table], first=number)
        query.processAllAvailable()
    assert run.counts == true_counts(run.tables)
    told = [event for event in query.story() if event.what == "rewound"]
    # Once it was tried; then it is known that it is of no use.
    assert [event.detail["stayed"] for event in told] == [2, 0, 0]
    assert "cut into other epochs" in told[1].cause
    query.stop()


def test_what_an_epoch_was_made_of_is_told_by_sparks_logs(run):
    write_epochs(run.work / "in", run.tables)
    query = run.start(run.rows().apply(KeyedAggregate(), key="k", parallelism=2))
    query.processAllAvailable()
    query.stop()
    checkpoint = SparkCheckpoint(str(run.work / "checkpoint"))
    for epoch in (0, 3):
        ((end, (file,)),) = checkpoint.rows_of(epoch)
        assert end == {"logOffset": epoch}
        assert f"{epoch:05d}.parquet" in file


def test_lists_of_files_that_spark_has_summed_up_are_read_too(tmp_path):
    """Every tenth list holds those before it, which Spark removes after a while."""
    (tmp_path / "offsets").mkdir()
    for epoch in range(13):
        offset = "\n".join(["v1", "{}", json.dumps({"logOffset": epoch})])
        (tmp_path / "offsets" / str(epoch)).write_text(offset)
    lists = tmp_path / "sources" / "0"
    lists.mkdir(parents=True)
    lines = [json.dumps({"path": f"file-{n}", "timestamp": n, "batchId": n}) for n in range(13)]
    (lists / "9.compact").write_text("\n".join(["v1", *lines[:10]]))
    for number in (8, 10, 11, 12):
        (lists / str(number)).write_text(f"v1\n{lines[number]}")
    checkpoint = SparkCheckpoint(str(tmp_path))
    for epoch in range(13):
        assert checkpoint.rows_of(epoch) == [[{"logOffset": epoch}, [lines[epoch]]]]


def test_steps_that_chance_or_the_clock_decide_are_seen(spark):
    rows = spark.range(3)
    assert same_again(rows.where("id % 2 = 0").groupBy("id").count())
    assert not same_again(rows.where(F.rand() < 0.5))
    assert not same_again(rows.withColumn("at", F.current_timestamp()))
