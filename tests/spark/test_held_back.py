# ruff: noqa: N802 - Spark's own names
"""An epoch is sent again when an executor has died and nothing of it is at work, and only then."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tether.spark.places import held_back
from tether.spark.places.held_back import HeldBack, HeldBackError
from tether.spark.places.spreading import live_executors
from tether.testing.epochs import read_epochs, write_epochs


class Scheduler:
    """What is asked of Spark: who is alive, and what the epoch's one stage does."""

    def __init__(self):
        self.executors = ["a", "b"]
        self.at_work = 0
        self.cancelled = threading.Event()
        self.looked = threading.Semaphore(0)
        self.tags = set()
        tracker = SimpleNamespace(getJobIdsForTag=lambda _: [7])
        java = SimpleNamespace(statusTracker=lambda: tracker, getExecutorMemoryStatus=lambda: self)
        self._jsc = SimpleNamespace(sc=lambda: java)

    def keySet(self):
        return self

    def mkString(self, separator):
        self.looked.release()
        return separator.join(self.executors)

    def statusTracker(self):
        return self

    def getJobInfo(self, job):
        return SimpleNamespace(stageIds=[job, job + 1])

    def getStageInfo(self, stage):
        if stage != 7:
            return None  # not begun
        return SimpleNamespace(numTasks=2, numCompletedTasks=1, numActiveTasks=self.at_work)

    def addJobTag(self, tag):
        self.tags.add(tag)

    def removeJobTag(self, tag):
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag):
        if self.tags == {tag}:  # as on Spark, a cancel that comes too late meets nothing
            self.cancelled.set()

    def looks(self, number):
        for _ in range(number):
            assert self.looked.acquire(timeout=120)


@pytest.fixture
def scheduler(monkeypatch):
    monkeypatch.setattr(held_back, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(held_back, "HASTY_SECONDS", 0.01)
    monkeypatch.setattr(held_back, "InheritableThread", threading.Thread)
    return Scheduler()


def watch_of(scheduler, *, hasty=False):
    return HeldBack(SimpleNamespace(sparkContext=scheduler), hasty=hasty)


@pytest.mark.parametrize(("hasty", "at_work"), [(False, 0), (True, 0), (True, 1)])
def test_tasks_that_wait_for_a_dead_executor_are_sent_again(scheduler, hasty, at_work):
    watch, scheduler.at_work = watch_of(scheduler, hasty=hasty), at_work

    def epoch():
        with watch.watched():
            scheduler.executors = ["b"]
            assert scheduler.cancelled.wait(120)
            raise RuntimeError("the job was cancelled")

    with pytest.raises(HeldBackError):
        epoch()
    scheduler.cancelled.clear()
    with watch.watched():  # the one that is gone now was gone before: nothing more is broken off
        scheduler.looks(10)
    assert not scheduler.cancelled.is_set()
    assert scheduler.tags == set()
    watch.end()


@pytest.mark.parametrize(
    ("lost", "at_work", "hasty"), [(False, 0, False), (True, 1, False), (False, 1, True)]
)
def test_a_slow_epoch_is_left_alone(scheduler, lost, at_work, hasty):
    watch = watch_of(scheduler, hasty=hasty)
    with watch.watched():
        scheduler.executors = ["b"] if lost else ["a", "b", "c"]
        scheduler.at_work = at_work
        scheduler.looks(10)
    assert not scheduler.cancelled.is_set()
    watch.end()


def test_an_epoch_that_fails_by_itself_fails(scheduler):
    watch = watch_of(scheduler)
    with pytest.raises(ZeroDivisionError), watch.watched():
        raise ZeroDivisionError
    watch.end()


def test_the_jobs_of_a_stream_s_epoch_are_found_and_cancelled(spark, monkeypatch, tmp_path):
    """On Spark itself: the epoch's function runs in a thread of Spark's, and its jobs carry the tag."""
    assert len(live_executors(spark.sparkContext)) == 1, "the driver is one, and here the only one"
    alive = iter([{"a", "b"}])
    monkeypatch.setattr(held_back, "live_executors", lambda _: next(alive, {"a"}))
    at_work = tmp_path / "at work"

    def at_work_is_waiting(watch, tag):
        """Turned about: here nobody dies, so the one task at work is taken for one that waits."""
        jobs = watch._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        return at_work.exists() and len(jobs) == 1 and not real(watch, tag)

    real = HeldBack._only_waiting
    monkeypatch.setattr(HeldBack, "_only_waiting", at_work_is_waiting)
    watch, ends = HeldBack(spark), []

    def task(_):
        at_work.touch()
        time.sleep(60)

    def epoch(rows, number):
        try:
            with watch.watched():
                rows.sparkSession.range(1).foreach(task)
        except HeldBackError as error:
            ends.append(error)
        with watch.watched():  # sent again, all that was alive is
            ends.append(rows.sparkSession.range(3).count())

    write_epochs(tmp_path / "in", [pa.table({"k": [1]})])
    writer = read_epochs(spark, tmp_path / "in", "k long").writeStream.foreachBatch(epoch)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    watch.end()
    assert isinstance(ends[0], HeldBackError)
    assert ends[1:] == [3]
