"""Windows end by epochs, by items and by event time, on real Spark."""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F

import tether
from tether.testing.epochs import read_epochs, write_epochs

from .counting import skewed_keys
from .graph_operators import Total, options

# Spark's workers do not have the tests on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class PerWindow(tether.Operator):
    """Counts rows of each window; the end of one emits and clears."""

    output = "start double, end double, n long"

    def setup(self, state):
        self.rows = state.table("rows", {"one": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.rows.add(pa.record_batch({"one": [0]}), n=[batch.num_rows])

    def on_window_end(self, window, out):
        n = sum(row["n"] for b in self.rows.batches() for row in b.to_pylist())
        out.emit({"start": [window.start], "end": [window.end], "n": [n]})
        self.rows.clear()


def windows(spark, tmp_path, tables, schema, **apply):
    write_epochs(tmp_path / "in", tables)
    ended = []
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", schema))
        .apply(PerWindow(), parallelism=1, **apply)
        .start(
            lambda df, epoch: ended.extend(tuple(row) for row in df.collect()),
            tolerance=tether.Approximate(1000),
            **options(tmp_path),
        )
    )
    query.processAllAvailable()
    query.stop()
    return ended


def test_windows_by_epochs_end_exactly(spark, tmp_path):
    tables = [pa.table({"k": [1] * (epoch + 1)}) for epoch in range(5)]
    ended = windows(spark, tmp_path, tables, "k long", window=tether.Hopping(2, "epochs"))
    assert ended == [(0, 2, 1 + 2), (2, 4, 3 + 4)]


def test_windows_by_items_end_in_the_epoch_that_passes_them(spark, tmp_path):
    tables = [pa.table({"k": [1] * 4}) for _ in range(4)]
    ended = windows(spark, tmp_path, tables, "k long", window=tether.Hopping(8, "items"))
    assert ended == [(0, 8, 8), (8, 16, 8)]


def test_windows_by_event_time_end_when_the_watermark_has_passed_them(spark, tmp_path):
    stamps = [[1, 30], [59, 61], [62, 131], [132]]
    tables = [pa.table({"at": pa.array(s, pa.timestamp("s"))}) for s in stamps]
    ended = windows(
        spark,
        tmp_path,
        tables,
        "at timestamp",
        window=tether.Hopping(60),
        event_time="at",
        lateness=5.0,
    )
    # The watermark after epoch 2 is 126: both windows end in epoch 3, the first with all rows.
    assert [(start, end) for start, end, _ in ended] == [(0, 60), (60, 120)]
    assert ended[0][2] == 7


def test_a_flush_between_epochs_leaves_the_clock_alone(spark, tmp_path):
    """As where slots are spread again: windows that are about to end still do."""
    stamps = [[1, 30], [59, 131]]
    tables = [pa.table({"at": pa.array(s, pa.timestamp("s"))}) for s in stamps]
    write_epochs(tmp_path / "in", tables)
    ended = []
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", "at timestamp"))
        .apply(PerWindow(), parallelism=1, window=tether.Hopping(60), event_time="at")
        .start(
            lambda df, epoch: ended.extend(tuple(row) for row in df.collect()),
            tolerance=tether.Approximate(1000),
            **options(tmp_path),
        )
    )
    query.processAllAvailable()
    (runner,) = query._driver.runners
    runner.flush(runner.committed_epoch)
    write_epochs(tmp_path / "in", [pa.table({"at": pa.array([132], pa.timestamp("s"))})], first=2)
    query.processAllAvailable()
    assert query.bound().spent == 0
    query.stop()
    assert [(start, end) for start, end, _ in ended] == [(0, 60), (60, 120)]


def test_a_hopping_window_gives_back_what_failures_took(spark, tmp_path):
    from tether.chaos.faults import Fault

    tables = skewed_keys(6, rows=200, keys=20, seed=5)
    write_epochs(tmp_path / "in", tables)
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", "k long"))
        .transform(lambda df: df.withColumn("n", F.lit(1).cast("long")))
        .apply(Total(), key="k", parallelism=1)
        .start(
            tolerance=tether.Approximate(400, window=tether.Hopping(4, "epochs")),
            arena_dir=str(tmp_path / "arena"),
            faults=[
                Fault(point="before-attach", marker=str(tmp_path / "m"), epoch=2, action="forget")
            ],
            **options(tmp_path),
        )
    )
    query.processAllAvailable()
    failures = [slot["failures"] for slot in query.slots()]
    assert failures == [1]
    assert query.totals()["losses"] == 1
    assert query.slots()[0]["theta"] == 200  # Θ/2 as at the start: the loss was two windows ago
    assert query.bound().spent == 0
    query.stop()
