"""Exact policies on Spark: stopping, going back, sources that give rows once, and what is refused.

That their answers survive whatever is killed is for ``tests/chaos`` to show.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.chaos import plans
from tests.chaos.workloads import WORKLOADS, written

import tether
from tether.core.errors import QueryRefusedError
from tether.spark.epoch_sink import numbered
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.injector import Injector

from .counting import true_counts
from .graph_operators import Ahead, Behind, Partial, Total

EPOCHS = 7


class Run:
    """One query on directories of its own, with its answer and what it wrote."""

    def __init__(self, spark, work, policy, workload="counts") -> None:
        self.spark, self.work, self.policy = spark, work, policy
        self.workload = WORKLOADS[workload]
        self.tables = self.workload.tables(EPOCHS)
        self.injector = Injector(work / "strikes")
        write_epochs(work / "in", self.tables)

    def rows(self):
        return tether.stream(read_epochs(self.spark, self.work / "in", self.workload.schema))

    def start(self, stream=None, **options):
        stream = self.workload.build(self.rows()) if stream is None else stream
        return stream.start(
            tether.to_epochs(str(self.work / "out")),
            tolerance=self.policy,
            backup=str(self.work / "backup"),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=self.injector.faults,
            **options,
        )

    def finish(self):
        """Run to the end, look at the answer, stop."""
        query = self.start()
        query.processAllAvailable()
        self.workload.check(self.tables, self.written())
        query.stop()

    def written(self):
        return written(self.work / "out")


def test_a_query_stopped_and_started_again_goes_on_from_its_flushed_snapshot(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(40), "loop")
    run.finish()
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 3]})], first=EPOCHS)
    query = run.start()
    query.processAllAvailable()
    last = {row["model"] for row in run.written() if row["epoch"] == EPOCHS}
    assert last == {EPOCHS}
    recoveries = [event for event in query.story() if event.what == "recovery"]
    assert {event.detail["backup_epoch"] for event in recoveries} == {EPOCHS - 1}
    assert "rewound" not in {event.what for event in query.story()}
    query.stop()


def test_a_rewind_is_told_and_the_handle_stays(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    plans.lose_one(run.injector, run.workload, 5)
    query = run.start(trigger={"availableNow": True})
    first = query.id
    assert query.awaitTermination() is None
    assert (query.id, query.exception(), query.isActive) == (first, None, False)
    (rewound,) = [event for event in query.story() if event.what == "rewound"]
    assert "has lost its state before epoch 5" in rewound.cause
    assert rewound.detail["snapshot"] == 3
    assert rewound.detail["epochs_again"] == 1
    assert len(query.recentProgress) > EPOCHS
    assert all(progress["tether"] is not None for progress in query.recentProgress)
    # Counts come out the same again, so the slot that had lost nothing stayed as it was.
    assert (rewound.detail["slots"], rewound.detail["stayed"]) == (1, 1)
    recoveries = [event for event in query.story() if event.what == "recovery"]
    assert [event.cause for event in recoveries] == ["no resident state here"]


def test_snapshots_by_seconds_come_before_spark_forgets_how_to_read_again(spark, tmp_path):
    """Here one is due in an hour, and Spark remembers the rows of six epochs."""
    run = Run(spark, tmp_path, tether.Barrier(3600, by="seconds"))
    run.tables = [*run.tables, *run.tables]
    write_epochs(tmp_path / "in", run.tables)
    plans.lose_one(run.injector, run.workload, 2 * EPOCHS - 2)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "6")
    try:
        run.finish()
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    assert run.injector.struck()


@pytest.mark.long
def test_a_driver_that_died_over_a_rewind_has_it_finished(spark, tmp_path):
    """Killed right after the note was written: nothing is cut yet, sinks hold what will come again."""
    from tether.spark.logs.checkpoint import SparkCheckpoint

    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    plans.lose_one(run.injector, run.workload, 5)
    run.injector.at("during-rewind", "raise")
    query = run.start()
    with pytest.raises(tether.TetherError, match="on purpose"):
        query.processAllAvailable()
    query.stop()
    assert SparkCheckpoint(str(tmp_path / "checkpoint")).announced() == 4
    run.finish()


@pytest.mark.long
@pytest.mark.parametrize(
    "policy", [tether.UpstreamBackup(0.4), tether.Approximate(0)], ids=lambda policy: policy.name
)
def test_rows_of_a_source_that_gives_them_once_are_kept(spark, tmp_path, policy):
    """An epoch fails after its rows were taken; then they are gone, as those of a socket are."""
    run = Run(spark, tmp_path, policy)
    for _ in range(4):  # as often as Spark tries
        run.injector.at("halfway", "raise", epoch=3, slot=0)

    def start():
        rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"), replays=False)
        return run.start(run.workload.build(rows))

    query = start()
    with pytest.raises(tether.TetherError, match="The query failed"):
        query.processAllAvailable()
    assert run.injector.struck()
    query.stop()
    (tmp_path / "in" / "00003.parquet").unlink()
    plans.lose_all(run.injector, run.workload, 5)
    query = start()
    query.processAllAvailable()
    assert {r["k"]: r["count"] for r in query.table("totals").collect()} == true_counts(run.tables)
    query.stop()


def test_what_could_not_be_exact_is_refused(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(3))
    rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"), replays=False)
    with pytest.raises(QueryRefusedError, match="cannot be read again"):
        run.start(rows.apply(Partial(), parallelism=2))
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 9).load()
    with pytest.raises(QueryRefusedError, match="cannot be read again"):
        run.start(WORKLOADS["words"].build(tether.stream(socket)))
    ahead = run.rows().apply(Ahead(), key="k", parallelism=2)
    with pytest.raises(QueryRefusedError, match="cannot run under"):
        run.start(
            ahead.apply(Behind(), parallelism=1, feedback_to=ahead), consistency=tether.SSP(1)
        )
    run.policy = tether.Barrier(80)
    with pytest.raises(QueryRefusedError, match="cannot be relied on"):
        run.start(run.rows().apply(Partial(), parallelism=2))
    run.policy = {"partial": tether.Barrier(3), "total": tether.MiniBatch()}
    mixed = run.rows().apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=2)
    with pytest.raises(QueryRefusedError, match="Only some operators"):
        run.start(mixed)


def test_output_rows_are_numbered_on_request(spark, tmp_path):
    run = Run(spark, tmp_path, tether.MiniBatch())
    query = run.start(run.rows().apply(Partial(), parallelism=2), numbered=True)
    query.processAllAvailable()
    query.stop()
    rows = run.written()
    assert all(row["__epoch"] == row["epoch"] for row in rows)
    assert len({(row["__epoch"], row["__row"]) for row in rows}) == len(rows)


def test_a_rows_number_follows_its_key_and_not_the_order_of_the_state(spark):
    """What an approximate backup restored comes in another order; readers drop by number."""
    given = []
    sink = numbered(
        lambda rows, _: given.append({r["k"]: r["__row"] for r in rows.collect()}), ["k", "x"]
    )
    rows = [(k, k * k) for k in range(9)]
    for order in (rows, rows[::-1]):
        sink(spark.createDataFrame(order, "k long, n long").coalesce(1), 4)
    assert given[0] == given[1]
    assert len(set(given[0].values())) == 9
