"""Starts an epoch again if an executor dies in it, where Spark would hold tasks back.

A slot's task prefers the executor that held its state. If that executor dies while the task runs, Spark
holds the task back until ``spark.locality.wait`` is over, as long as other executors of the stage live;
and that wait must be long, because it pins slots. A new job has no such preference, because the lost
slot's anchor is lost with its executor. So the epoch's jobs are cancelled and started again, which is an
ordinary second attempt for slots that have finished the epoch.

Where a slot that lost its state can only fail its task, on any executor, the epoch is cancelled as soon
as an executor has died (``hasty``), because Spark would repeat such a task as often as any other.
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
"""Seconds between checks where the first dead executor ends the epoch."""
LOOKS = 3
"""An epoch is held back if this many checks in a row find its tasks waiting and none running."""


class HeldBackError(Exception):
    """An epoch was cancelled, and should be started again."""


class HeldBack:
    """Watches the epochs of one query on a cluster.

    Args:
        session: Session of the epochs; its context outlives this.
        hasty: Whether an epoch cannot finish once an executor has died.
    """

    def __init__(self, session: SparkSession, *, hasty: bool = False) -> None:
        self._hasty = hasty
        self._context = session.sparkContext
        self._changed = threading.Condition()
        self._tag = ""
        """Tag of the current jobs. Every attempt has another one: Spark cancels with a delay, and must
        not cancel the jobs of the next attempt."""
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
        """Stop watching."""
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
        """Whether jobs have waiting tasks, and none is running."""
        tracker = self._context.statusTracker()
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        infos = [tracker.getJobInfo(job) for job in jobs]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        begun = [stage for stage in stages if stage is not None]
        if any(stage.numActiveTasks for stage in begun):
            return False
        return any(stage.numCompletedTasks < stage.numTasks for stage in begun)
