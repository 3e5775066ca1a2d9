"""An executor dies within an epoch: the epoch is sent again, where Spark would hold its tasks back.

A slot's task prefers the executor that held its state. Where that dies while the task runs, Spark keeps
the task for it until ``spark.locality.wait`` is over, as long as other executors of the stage live; and
that wait must be long, for it is what pins slots. A new job has no such preference: the lost slot's
anchor is gone with its executor. So the epoch's jobs are broken off and begun anew, which slots that
have done the epoch already take as any second attempt.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import InheritableThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.5
LOOKS = 3
"""So many looks in a row must have found tasks waiting, and none of the epoch's at work."""


class HeldBackError(Exception):
    """An epoch was broken off, to be sent again."""


class HeldBack:
    """Watches the epochs of one query on a cluster.

    Args:
        session: Session of the epochs; its context outlives this.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._tag = f"tether-{uuid.uuid4().hex}"
        self._changed = threading.Condition()
        self._at_work = False
        self._ended = False
        self._broken_off = False
        self._executors: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around an epoch's jobs.

        Raises:
            HeldBackError: They were broken off, and should be begun anew.
        """
        if self._thread is None:
            self._thread = InheritableThread(target=self._watch, daemon=True)
            self._thread.start()
        self._context.addJobTag(self._tag)
        with self._changed:
            self._executors, self._broken_off, self._at_work = self._alive(), False, True
            self._changed.notify_all()
        try:
            yield
        except Exception as error:
            if self._broken_off:
                raise HeldBackError from error
            raise
        finally:
            with self._changed:
                self._at_work = False
            self._context.removeJobTag(self._tag)

    def end(self) -> None:
        """Watch no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self) -> None:
        looks = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._at_work or self._ended)
                if self._ended:
                    return
                executors = self._executors
            threading.Event().wait(LOOK_SECONDS)
            held = bool(executors - self._alive()) and self._only_waiting()
            looks = looks + 1 if held else 0
            with self._changed:
                if looks < LOOKS or not self._at_work:
                    continue
                self._broken_off, self._at_work = True, False
            looks = 0
            self._context.cancelJobsWithTag(self._tag)

    def _alive(self) -> frozenset[str]:
        infos = self._context.statusTracker().getExecutorInfos()
        return frozenset(f"{info.host}:{info.port}" for info in infos)

    def _only_waiting(self) -> bool:
        """Whether the epoch has tasks to do, and none at work."""
        tracker = self._context.statusTracker()
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag)
        infos = [tracker.getJobInfo(job) for job in jobs]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        begun = [stage for stage in stages if stage is not None]
        if any(stage.numActiveTasks for stage in begun):
            return False
        return any(stage.numCompletedTasks < stage.numTasks for stage in begun)
