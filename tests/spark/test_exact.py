"""Exact policies on Spark: stopping, going back, sources that give rows once, and what is refused.

The short form: replay inside a slot, a rewind, a flushed snapshot. The long one is
``test_exact_matrix``, with what is marked ``long`` here.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import tether
from tether.core.errors import QueryRefusedError
from tether.spark.faults import Fault
from tether.testing.epochs import read_epochs, write_epochs

from .counting import true_counts
from .exact_queries import KINDS, POLICIES, forget, start
from .test_graphs import Ahead, Behind, Partial, Total

EPOCHS = 7


class Run:
    """One query on directories of its own, with its answer and what it wrote."""

    def __init__(self, spark, work, policy, kind="aggregate") -> None:
        self.spark, self.work, self.policy, self.kind = spark, work, policy, KINDS[kind]
        self.tables = self.kind.tables(EPOCHS)
        write_epochs(work / "in", self.tables)

    def rows(self):
        return tether.stream(read_epochs(self.spark, self.work / "in", self.kind.schema))

    def start(self, stream, faults=(), **options):
        return stream.start(
            tether.to_epochs(str(self.work / "out")),
            tolerance=self.policy,
            backup=str(self.work / "backup"),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=list(faults),
            **options,
        )

    def started(self, faults=(), **options):
        return start(self.spark, self.kind, self.policy, self.work, list(faults), **options)

    def finished(self, faults=()):
        """The query at its end, its answer checked."""
        query = self.started(faults)
        query.processAllAvailable()
        self.kind.check(self.tables, self.work / "out")
        return query

    def written(self):
        return self.spark.read.parquet(str(self.work / "out")).collect()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("upstream-backup", "heavy-hitters"),
        pytest.param("mini-batch", "top-k", marks=pytest.mark.long),
        pytest.param("barrier-sync", "word-count", marks=pytest.mark.long),
        pytest.param("barrier-async", "loop", marks=pytest.mark.long),
    ],
)
def test_losses_change_no_answer(spark, tmp_path, name, kind):
    run = Run(spark, tmp_path, POLICIES[name], kind)
    faults = forget(tmp_path, run.kind, 2, only=-1) + forget(tmp_path, run.kind, 5)
    faults.append(Fault(point="halfway", epoch=3, marker=str(tmp_path / "killed")))
    query = run.finished(faults)
    assert (tmp_path / "killed").exists()
    events = Counter(event.what for event in query.story())
    assert events["recovery"] >= 2
    assert query.bound().spent == 0
    assert query.totals()["losses"] == 0
    if name.startswith("barrier"):
        assert events["rewound"] >= 1
        assert events["snapshot"] >= 1
    else:
        assert events["rewound"] == 0
    query.stop()
    assert query.exception() is None


def test_a_query_stopped_and_started_again_goes_on_from_its_flushed_snapshot(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(40), "loop")
    run.finished().stop()
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 3]})], first=EPOCHS)
    query = run.started()
    query.processAllAvailable()
    last = {row["model"] for row in run.written() if row["epoch"] == EPOCHS}
    assert last == {EPOCHS}
    recoveries = [event for event in query.story() if event.what == "recovery"]
    assert {event.detail["backup_epoch"] for event in recoveries} == {EPOCHS - 1}
    assert "rewound" not in {event.what for event in query.story()}
    query.stop()


def test_a_rewind_is_told_and_the_handle_stays(spark, tmp_path):
    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    faults = forget(tmp_path, run.kind, 5, only=0)
    query = run.started(faults, trigger={"availableNow": True})
    first = query.id
    assert query.awaitTermination() is None
    assert (query.id, query.exception(), query.isActive) == (first, None, False)
    (rewound,) = [event for event in query.story() if event.what == "rewound"]
    assert "has lost its state before epoch 5" in rewound.cause
    assert rewound.detail["snapshot"] == 3
    assert rewound.detail["epochs_again"] == 1
    assert len(query.recentProgress) > EPOCHS


@pytest.mark.long
def test_a_driver_that_died_over_a_rewind_has_it_finished(spark, tmp_path):
    """Killed right after the note was written: nothing is cut yet, sinks hold what will come again."""
    from tether.spark.checkpoint import SparkCheckpoint

    run = Run(spark, tmp_path, tether.Barrier(3, mode="sync"))
    faults = forget(tmp_path, run.kind, 5, only=0)
    faults.append(Fault(point="during-rewind", action="raise", marker=str(tmp_path / "rewinding")))
    query = run.started(faults)
    with pytest.raises(tether.TetherError, match="on purpose"):
        query.processAllAvailable()
    query.stop()
    assert SparkCheckpoint(str(tmp_path / "checkpoint")).announced() == 4
    run.finished(faults).stop()


@pytest.mark.long
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
        return run.start(run.kind.build(rows), faults)

    query = start(attempts)
    with pytest.raises(tether.TetherError, match="on purpose"):
        query.processAllAvailable()
    query.stop()
    (tmp_path / "in" / "00003.parquet").unlink()
    query = start(forget(tmp_path, run.kind, 5))
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
        run.start(KINDS["word-count"].build(tether.stream(socket)))
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
