"""Exact policies on Spark: stopping, going back, sources that give rows once, and what is refused.

That no failure changes an answer, for every policy, query and point, is the matrix of tests/chaos.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import tether
from tether.core.errors import QueryRefusedError
from tether.spark.faults import Fault
from tether.testing.epochs import read_epochs, write_epochs

from .counting import skewed_keys, true_counts
from .test_graphs import Ahead, Behind, Partial, Total

EPOCHS = 7


class Run:
    """One query on directories of its own, with its answer and what it wrote."""

    def __init__(self, spark, work, policy) -> None:
        self.spark, self.work, self.policy = spark, work, policy
        self.tables = skewed_keys(EPOCHS, rows=300, keys=40, seed=4)
        write_epochs(work / "in", self.tables)

    def rows(self):
        return tether.stream(read_epochs(self.spark, self.work / "in", "k long"))

    def start(self, stream, faults, **options):
        return stream.start(
            tether.to_epochs(str(self.work / "out")),
            tolerance=self.policy,
            backup=str(self.work / "backup"),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=faults,
            **options,
        )

    def written(self):
        return self.spark.read.parquet(str(self.work / "out")).collect()


def counts(run, faults):
    query = run.start(run.rows().apply(tether_counts(), key="k", parallelism=2), faults)
    query.processAllAvailable()
    truth = true_counts(run.tables)
    assert {row["k"]: row["count"] for row in query.table("totals").collect()} == truth
    # Each epoch's output is the counts of its keys as of then, once.
    expected, so_far = Counter(), Counter()
    for epoch, table in enumerate(run.tables):
        so_far.update(table["k"].to_pylist())
        expected.update((epoch, key, so_far[key]) for key in set(table["k"].to_pylist()))
    assert Counter((row["epoch"], row["k"], row["count"]) for row in run.written()) == expected
    return query


def tether_counts():
    from tether.algorithms.aggregate import KeyedAggregate

    return KeyedAggregate(divergence="l1")


def loop(run, faults):
    ahead = run.rows().apply(Ahead(), key="k", parallelism=2)
    query = run.start(ahead.apply(Behind(), parallelism=1, feedback_to=ahead), faults)
    query.processAllAvailable()
    models = {(row["epoch"], row["model"]) for row in run.written()}
    assert models == {(0, -1)} | {(epoch, epoch) for epoch in range(1, EPOCHS)}
    assert [row["n"] for row in query.table("epochs", "behind").collect()] == [EPOCHS]
    return query


SLOTS = {
    "counts": {"keyed_aggregate": 2},
}


def forget(tmp_path, kind, epoch, *, only=None):
    """Resident state removed: of one slot of the last operator, or of all slots of all operators."""
    slots = [(operator, slot) for operator, n in SLOTS[kind].items() for slot in range(n)]
    return [
        Fault(
            point="before-attach",
            action="forget",
            epoch=epoch,
            slot=slot,
            operator=operator,
            marker=str(tmp_path / f"forgot-{epoch}-{operator}-{slot}"),
        )
        for operator, slot in (slots if only is None else [slots[only]])
    ]


def test_a_query_stopped_and_started_again_goes_on_from_its_flushed_snapshot(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(40))
    loop(run, []).stop()
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 3]})], first=EPOCHS)
    ahead = run.rows().apply(Ahead(), key="k", parallelism=2)
    query = run.start(ahead.apply(Behind(), parallelism=1, feedback_to=ahead), [])
    query.processAllAvailable()
    last = {row["model"] for row in run.written() if row["epoch"] == EPOCHS}
    assert last == {EPOCHS}
    recoveries = [event for event in query.story() if event.what == "recovery"]
    assert {event.detail["backup_epoch"] for event in recoveries} == {EPOCHS - 1}
    assert "rewound" not in {event.what for event in query.story()}
    query.stop()


def test_a_rewind_is_told_and_the_handle_stays(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    stream = run.rows().apply(tether_counts(), key="k", parallelism=2)
    query = run.start(stream, forget(tmp_path, "counts", 5, only=0), trigger={"availableNow": True})
    first = query.id
    assert query.awaitTermination() is None
    assert (query.id, query.exception(), query.isActive) == (first, None, False)
    (rewound,) = [event for event in query.story() if event.what == "rewound"]
    assert "has lost its state before epoch 5" in rewound.cause
    assert rewound.detail["snapshot"] == 3
    assert rewound.detail["epochs_again"] == 1
    assert len(query.recentProgress) > EPOCHS


def test_a_driver_that_died_over_a_rewind_has_it_finished(spark, tmp_path):
    """Killed right after the note was written: nothing is cut yet, sinks hold what will come again."""
    from tether.spark.checkpoint import SparkCheckpoint

    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    stream = run.rows().apply(tether_counts(), key="k", parallelism=2)
    faults = forget(tmp_path, "counts", 5, only=0)
    faults.append(Fault(point="during-rewind", action="raise", marker=str(tmp_path / "rewinding")))
    query = run.start(stream, faults)
    with pytest.raises(tether.TetherError, match="on purpose"):
        query.processAllAvailable()
    query.stop()
    assert SparkCheckpoint(str(tmp_path / "checkpoint")).announced() == 4
    counts(run, faults).stop()


def test_rows_of_a_source_that_gives_them_once_are_kept(spark, tmp_path):
    """An epoch fails after its rows were taken; then they are gone, as those of a socket are."""
    run = Run(spark, tmp_path, tether.UpstreamBackup(0.4))
    attempts = [
        Fault(
            point="halfway", epoch=3, slot=0, action="raise", marker=str(tmp_path / f"struck-{n}")
        )
        for n in range(4)  # as often as Spark tries
    ]

    def start(faults):
        rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"), replays=False)
        return run.start(rows.apply(tether_counts(), key="k", parallelism=2), faults)

    query = start(attempts)
    with pytest.raises(tether.TetherError, match="on purpose"):
        query.processAllAvailable()
    query.stop()
    (tmp_path / "in" / "00003-0.parquet").unlink()
    query = start(forget(tmp_path, "counts", 5))
    query.processAllAvailable()
    assert {r["k"]: r["count"] for r in query.table("totals").collect()} == true_counts(run.tables)
    query.stop()


def test_what_could_not_be_exact_is_refused(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(3))
    rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"), replays=False)
    with pytest.raises(QueryRefusedError, match="cannot be read again"):
        run.start(rows.apply(Partial(), parallelism=2), [])
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 9).load()
    with pytest.raises(QueryRefusedError, match="cannot be read again"):
        run.start(tether.stream(socket).apply(tether_counts(), key="value", parallelism=2), [])
    ahead = run.rows().apply(Ahead(), key="k", parallelism=2)
    with pytest.raises(QueryRefusedError, match="cannot run under"):
        run.start(
            ahead.apply(Behind(), parallelism=1, feedback_to=ahead), [], consistency=tether.SSP(1)
        )
    run.policy = tether.Barrier(80)
    with pytest.raises(QueryRefusedError, match="too rare"):
        run.start(run.rows().apply(Partial(), parallelism=2), [])
    run.policy = {"partial": tether.Barrier(3), "total": tether.MiniBatch()}
    mixed = run.rows().apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=2)
    with pytest.raises(QueryRefusedError, match="Only some operators"):
        run.start(mixed, [])


def test_output_rows_are_numbered_on_request(spark, tmp_path):
    run = Run(spark, tmp_path, tether.MiniBatch())
    query = run.start(run.rows().apply(Partial(), parallelism=2), [], numbered=True)
    query.processAllAvailable()
    query.stop()
    rows = run.written()
    assert all(row["__epoch"] == row["epoch"] for row in rows)
    assert len({(row["__epoch"], row["__row"]) for row in rows}) == len(rows)
