"""Attempts of a task: in this process, or in one of its own where it is about to be killed.

A task that fails is tried again, as by Spark, up to four times. What an attempt adds to accumulators
counts if it has succeeded.

A task whose output is read no further is *cut*. Spark ends such a Python worker whenever it comes to it,
so two ends are played: "close": it never gets past the row that it last gave; "finish": it does all of
its work, but nobody hears of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from tether.engine.writing.items import pack_items
from tether.state import executor
from tether.testing.inprocess import reaching
from tether.testing.inprocess.writers import settle_writers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.chaos.faults import Fault
    from tether.testing.inprocess.executors import Executors
    from tether.testing.inprocess.frames import Batches, Job, LocalFrame

Cut = Literal["close", "finish"]
ATTEMPTS = 4
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Task(NamedTuple):
    """One partition of a frame, to be read: to its end, or up to a number of rows."""

    frame: LocalFrame
    partition: int
    job: Job
    most: int | None
    cut: Cut

    def read(self) -> tuple[Batches, bool]:
        """The rows, and whether the task came to its end and could tell of it."""
        batches = self.frame.read(self.partition, self.job)
        rows: Batches = []
        for batch in batches:
            rows.append(batch)
            if self.most is not None and sum(one.num_rows for one in rows) >= self.most:
                if self.cut == "close":
                    batches.close()  # type: ignore[attr-defined]  # a generator
                else:
                    for _ in batches:
                        pass
                return rows, False
        return rows, True


class Done(NamedTuple):
    """What an attempt leaves behind."""

    rows: Batches
    reports: list[tuple[int, Any]]


class TaskFailedError(RuntimeError):
    """All attempts of a task have failed; its text is all that is left of the error, as in Spark."""


class Tasks:
    """Runs the tasks of a session.

    Args:
        context: Whose accumulators tasks add to.
        executors: Where they run; None for this process.
        faults: A task that one of these would kill gets a process of its own.
    """

    def __init__(
        self, context: Any, executors: Executors | None, faults: tuple[Fault, ...]
    ) -> None:
        self._context, self._executors, self._faults = context, executors, faults
        self._fatal = [fault for fault in faults if reaching.is_fatal(fault)]
        self._attempts = 0
        self._one_at_a_time = threading.RLock()
        """A query and its twin have threads of their own, and one process has one task context."""
        self.seated = False
        """Whether partitions are seats, of which any may be that of a slot."""

    def run(self, task: Task) -> Batches:
        """Run one task to its success.

        Raises:
            TaskFailedError: No attempt has succeeded.
        """
        with self._one_at_a_time:
            return self._run(task)

    def _run(self, task: Task) -> Batches:
        failed = ""
        for _ in range(ATTEMPTS):
            self._attempts += 1
            at = self._serve(task.partition)
            try:
                killed = self._may_be_killed(task)
                done = self._apart(task, at) if killed else self._attempt(task)
            except Exception as error:
                text = "".join(traceback.format_exception(error))
                failed = f"a task failed {ATTEMPTS} times, the last time by {error}\n{text}"
                continue
            self._context.publish(done.reports)
            return done.rows
        raise TaskFailedError(failed)

    def _serve(self, slot: int) -> int | None:
        """The executor that this process works for now; without any it is that itself."""
        if self._executors is not None:
            return self._executors.serve(slot)
        executor.stand_in = os.getpid()
        return None

    def _may_be_killed(self, task: Task) -> bool:
        return any(
            reaching.can_strike(fault, task.frame, task.partition, seated=self.seated)
            and not Path(fault.marker).exists()
            for fault in self._fatal
        )

    def _attempt(self, task: Task) -> Done:
        context = TaskContext._getOrCreate()
        context._partitionId, context._taskAttemptId = task.partition, self._attempts
        self._context.reports = []
        try:
            rows, whole = task.read()
            return Done(rows, self._context.reports if whole else [])
        finally:
            self._context.reports = None
            TaskContext._setTaskContext(None)

    def _apart(self, task: Task, served: int | None) -> Done:
        """An attempt in a process of its own, which may be killed."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            self._report(task, theirs)
        os.close(theirs)
        try:
            told = _heard(ours, pid, served)
        finally:
            os.close(ours)
            _, status = os.waitpid(pid, 0)
        if not told:
            raise RuntimeError(f"the Python worker died with status {status}")
        rows, reports, kept, failed = pickle.loads(told)  # noqa: S301 - of our own child
        if failed:
            raise RuntimeError(failed)
        for persisted in _persisted(task.frame):
            found = kept.get(persisted.number, {})
            assert persisted.kept is not None
            persisted.kept |= {at: _unpacked(batches) for at, batches in found.items()}
        return Done(_unpacked(rows), reports)

    def _report(self, task: Task, to: int) -> None:
        """In the child: do the work, tell of it, and end."""
        try:
            failed, done = "", Done([], [])
            try:
                done = self._attempt(task)
            except Exception as error:
                failed = "".join(traceback.format_exception(error))
            settle_writers(self._faults)  # a worker outlives its tasks; but this one does not
            kept = {
                one.number: {at: pack_items(batches) for at, batches in (one.kept or {}).items()}
                for one in _persisted(task.frame)
            }
            told = pickle.dumps((pack_items(done.rows), done.reports, kept, failed))
            with os.fdopen(to, "wb") as pipe:
                pipe.write(told)
        finally:
            os._exit(0)


def _heard(pipe: int, pid: int, served: int | None) -> bytes:
    """What the child tells; nothing if it, or its executor, is killed first."""
    watching = select.poll()
    watching.register(pipe, select.POLLIN | select.POLLHUP)
    death = os.pidfd_open(served) if served is not None else None
    if death is not None:
        watching.register(death, select.POLLIN)
    told = b""
    try:
        while True:
            ready = dict(watching.poll())
            if death is not None and death in ready:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # a worker does not outlive its executor
                return b""
            more = os.read(pipe, 1 << 20)
            if not more:
                return told
            told += more
    finally:
        if death is not None:
            os.close(death)


def _persisted(frame: LocalFrame) -> Iterator[LocalFrame]:
    if frame.kept is not None:
        yield frame
    for parent in frame.parents:
        yield from _persisted(parent)


def _unpacked(packed: bytes) -> Batches:
    return list(pa.ipc.open_stream(packed)) if packed else []
