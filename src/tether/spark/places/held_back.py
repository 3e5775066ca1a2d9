"""An executor dies within an epoch: the epoch is sent again, where Spark would hold its tasks back.

A slot's task prefers the executor that held its state. Where that dies while the task runs, Spark keeps
the task for it until ``spark.locality.wait`` is over, as long as other executors of the stage live; and
that wait must be long, for it is what pins slots. A new job has no such preference: the lost slot's
anchor is gone with its executor. So the epoch's jobs are broken off and started again, which slots that
have done the epoch already take as any second attempt.

Where a slot that lost its state can only fail its task, whatever the executor, the epoch is broken off
as soon as one is dead (``hasty``): Spark would try such a task as often as any other.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from tether.spark.places.spreading import live_executors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.5
HASTY_SECONDS = 0.2
"""Between looks where the first dead executor ends the epoch."""
LOOKS = 3
"""An epoch is held back if this many checks in a row find its tasks waiting and none running."""


class HeldBackError(Exception):
    """An epoch was broken off, to be sent again."""


class HeldBack:
    """Watches the epochs of one query on a cluster.

    Args:
        session: Session of the epochs; its context outlives this.
        hasty: Whether an epoch cannot come to its end once an executor is dead.
    """

    def __init__(self, session: SparkSession, *, hasty: bool = False) -> None:
        self._hasty = hasty
        self._context = session.sparkContext
        self._changed = threading.Condition()
        self._tag = ""
        """Of the jobs in hand. Another for every attempt: Spark cancels when it comes to it, and must
        not meet the jobs of the next one then."""
        self._executors: frozenset[str] = frozenset()
        self._broken_off = False
        self._ended = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around an epoch's jobs.

        Raises:
            HeldBackError: They were broken off, and should be started again.
        """
        if self._thread is None:
            self._thread = InheritableThread(target=self._watch, daemon=True)
            self._thread.start()
        tag, executors = f"tether-{uuid.uuid4().hex}", live_executors(self._context)
        self._context.addJobTag(tag)
        with self._changed:
            self._tag, self._executors, self._broken_off = tag, executors, False
            self._changed.notify_all()
        try:
            yield
        except Exception as error:
            if self._broken_off:
                raise HeldBackError from error
            raise
        finally:
            with self._changed:
                self._tag = ""
            self._context.removeJobTag(tag)

    def end(self) -> None:
        """Watch no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self) -> None:
        watched, looks = "", 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tag or self._ended)
                pause = HASTY_SECONDS if self._hasty else LOOK_SECONDS
                if self._changed.wait_for(lambda: self._ended, pause):
                    return
                tag, executors = self._tag, self._executors
            if not tag:
                continue
            try:
                dead = bool(executors - live_executors(self._context))
            except Exception:  # the application is being stopped
                return
            held = dead and (self._hasty or self._only_waiting(tag))
            looks = looks + 1 if held and tag == watched else int(held)
            watched = tag
            if looks < (1 if self._hasty else LOOKS):
                continue
            with self._changed:
                self._broken_off = self._tag == tag
            self._context.cancelJobsWithTag(tag)
            looks = 0

    def _only_waiting(self, tag: str) -> bool:
        """Whether jobs have tasks to do, and none at work."""
        tracker = self._context.statusTracker()
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        infos = [tracker.getJobInfo(job) for job in jobs]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        begun = [stage for stage in stages if stage is not None]
        if any(stage.numActiveTasks for stage in begun):
            return False
        return any(stage.numCompletedTasks < stage.numTasks for stage in begun)
