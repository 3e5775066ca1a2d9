"""The stand-in for Spark: the shipped runtime on it, to its end, through kills and losses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.testing.counting import Count

import tether
from tether.chaos.faults import Fault, is_holding, release
from tether.core.errors import TetherError
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession
from tether.testing.inprocess.writers import settle_writers

EPOCHS = [[1, 2, 3, 1], [2, 2, 7], [], [5, 1, 9, 9, 9]]
SCHEMA = pa.schema([("k", pa.int64())])


class Job:
    """A count of keys on the stand-in."""

    def __init__(self, work, *, sink=None, **options):
        self.work, self.options = work, options
        self.executors, self.faults = options.pop("executors", 0), options.pop("faults", ())
        self.given = []
        self.sink = sink or (lambda rows, epoch: self.given.append((epoch, rows.collect())))

    def start(self):
        self.session = LocalSession(
            home, batch_rows=2, executors=self.executors, faults=self.faults
        )
        rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in EPOCHS]
        self.source = EpochSource(self.session, rows, SCHEMA)
        return (
            tether.stream(self.source, replays=True)
            .apply(Count(), key="k", parallelism=2)
            .start(
                self.sink,
                **{
                    "tolerance": tether.Approximate(100),
                    "backup": str(self.work / "backup"),
                    "checkpoint": str(self.work / "checkpoint"),
                    "arena_dir": str(self.work / "arena"),
                    "faults": self.faults,
                    **self.options,
                },
            )
        )


@pytest.fixture
def job(tmp_path):
    jobs = []

    def make(**options):
        jobs.append(Job(tmp_path, **options))
        return jobs[-1]

    yield make
    for each in jobs:
        each.session.stop()


def counted(query):
    return {row["k"]: row["n"] for row in query.table("seen").collect()}


def truth(epochs=None):
    return Counter(key for keys in EPOCHS[:epochs] for key in keys)


def fault(tmp_path, point, action, **more):
    return Fault(point=point, action=action, marker=str(tmp_path / f"{point}-{action}"), **more)


def test_a_query_runs_to_its_end_and_goes_on_where_it_stopped(job):
    first = job()
    query = first.start()
    first.source.available = 2
    query.processAllAvailable()
    assert counted(query) == truth(2)
    query.stop()
    query = first.start()
    query.processAllAvailable()
    assert counted(query) == truth()
    assert [epoch for epoch, _ in first.given] == [0, 1, 2, 3]
    assert query.bound().spent == 0
    query.stop()


@pytest.mark.parametrize("point", ["halfway", "after-apply", "after-commit"])
def test_a_task_that_is_killed_is_tried_again(job, tmp_path, point):
    struck = fault(tmp_path, point, "kill", epoch=1)
    query = job(faults=[struck]).start()
    query.processAllAvailable()
    assert Path(struck.marker).exists()
    assert counted(query) == truth()
    assert query.totals()["losses"] == 0
    query.stop()


def test_state_dies_with_its_executor_and_not_with_its_worker(job, tmp_path):
    killed = fault(tmp_path, "halfway", "executor", epoch=1, slot=1)
    one = job(executors=2, faults=[killed], arena_scope="executor")
    query = one.start()
    query.processAllAvailable()
    assert query.totals()["losses"] == 1
    lost = sum(truth().values()) - sum(counted(query).values())
    assert 0 < lost <= query.bound().spent
    query.stop()


def test_a_task_that_never_succeeds_ends_the_query(job, tmp_path):
    faults = [
        fault(tmp_path / str(number), "halfway", "raise", epoch=1, slot=0) for number in range(4)
    ]
    for each in faults:
        (tmp_path / each.marker).parent.mkdir()
    query = job(faults=faults).start()
    with pytest.raises(TetherError, match="fault on purpose"):
        query.processAllAvailable()
    query.stop()
    assert query.exception() is not None


@pytest.mark.parametrize("cut", ["close", "finish"])
def test_a_sink_that_takes_a_part_runs_only_a_part(job, cut):
    taken = []
    query = job(sink=lambda rows, epoch: taken.append(rows.take(1, cut))).start()
    query.processAllAvailable()
    assert [len(rows) for rows in taken] == [1, 1, 0, 1]
    assert counted(query) == truth()
    query.stop()


def test_under_barrier_it_goes_back_and_reads_again(job, tmp_path):
    lost = fault(tmp_path, "before-attach", "forget", epoch=2, slot=0)
    query = job(faults=[lost], tolerance=tether.Barrier(10)).start()
    query.processAllAvailable()
    assert counted(query) == truth()
    assert "rewound" in {event.what for event in query.story()}
    query.stop()


def test_a_query_that_goes_back_has_not_ended(job, tmp_path):
    lost = fault(tmp_path, "before-attach", "forget", epoch=2, slot=0)
    one = job(faults=[lost], tolerance=tether.Barrier(10))
    query = one.start()
    supervisor = query._supervisor
    start, seen = supervisor._start, []

    def watched():  # nothing runs between the end of the one stream and the start of the next
        seen.append((query.isActive, query.exception()))
        return start()

    supervisor._start = watched
    query.processAllAvailable()
    assert seen == [(True, None)]
    assert counted(query) == truth()
    query.stop()
    assert (query.isActive, query.exception()) == (False, None)


def test_a_writer_can_be_held(job, tmp_path):
    held = fault(tmp_path, "during-writing", "hold", epoch=0)
    one = job(faults=[held], tolerance=tether.Barrier(1))
    query = one.start()
    one.source.available = 1
    query.processAllAvailable()
    settle_writers([held])
    assert is_holding(held)
    release(held)
    settle_writers([held])
    assert not is_holding(held)
    one.source.available = len(EPOCHS)
    query.processAllAvailable()
    assert counted(query) == truth()
    query.stop()
