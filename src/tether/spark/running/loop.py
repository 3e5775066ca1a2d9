"""The lane behind a feedback loop, run on a separate thread, a bounded number of epochs behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from tether.core.errors import TetherError
from tether.core.ids import NEVER, Epoch, epoch_after, epoch_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tether.engine.query.runner import Runner
    from tether.spark.logs.spool import Spool
    from tether.spark.tasks.cluster import SparkCluster


class BehindLoop:
    """Runs the epochs of the lane behind, in order, as the lane ahead leaves their rows.

    Args:
        runner: The lane behind.
        spool: Where its rows come from.
        staleness: s: ``follow`` lets the lane ahead go on while at most s epochs wait here.
    """

    def __init__(self, runner: Runner[SparkCluster], spool: Spool, staleness: int) -> None:
        self._runner, self._spool, self._staleness = runner, spool, staleness
        self._changed = threading.Condition()
        self._wanted = self._done = NEVER
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, session: SparkSession, epoch: Epoch) -> None:
        """Begin; epochs whose rows wait from an earlier run of the query are done first."""
        self._done = self._runner.committed_epoch
        self._wanted = epoch_before(epoch)
        self._thread = InheritableThread(
            target=self._work, args=(session,), name="tether-behind", daemon=True
        )
        self._thread.start()
        self._await(epoch - 1 - self._staleness)

    def follow(self, epoch: Epoch) -> None:
        """Take the rows of an epoch; returns when the lane ahead may run the next one.

        Raises:
            TetherError: The lane behind has failed.
        """
        with self._changed:
            self._done = min(
                self._done, epoch_before(epoch)
            )  # an epoch that is run again comes here again
            self._wanted = epoch
            self._changed.notify_all()
        self._await(epoch - self._staleness)

    def drain(self) -> None:
        """Wait until nothing is waiting."""
        with self._changed:
            wanted = self._wanted
        self._await(wanted)

    def end(self, seconds: float) -> bool:
        """Run the waiting epochs for at most ``seconds``; returns whether all were run."""
        if self._thread is None:
            return True
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(seconds)
        return self._failure is None and self._done >= self._wanted

    def _await(self, epoch: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done >= epoch or self._failure is not None)
            if self._failure is not None:
                raise TetherError(
                    f"The operators behind the feedback loop failed in epoch {self._done + 1}: "
                    f"{self._failure}",
                    why="The query cannot go on without them.",
                    do="Mend the cause and start the query again: it goes on with that epoch.",
                ) from self._failure

    def _work(self, session: SparkSession) -> None:
        try:
            while (epoch := self._next()) is not None:
                self._runner.run(self._spool.read(session, epoch), epoch)
                with self._changed:
                    self._done = epoch
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _next(self) -> Epoch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._done < self._wanted or self._stopping)
            return epoch_after(self._done) if self._done < self._wanted else None
