"""Keeps one query running over several queries of Spark.

After a loss Spark's query is stopped, taken back and restarted. The order makes a crash at any step
harmless: the rewind is announced durably; sinks take back output that will be given again; Spark's logs
are cut; the announcement is removed; Spark starts again. A start that finds the announcement repeats all
steps.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from tether.sql.checkpoints import settle_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming import StreamingQuery

    from tether.engine.deadline import Deadline
    from tether.spark.running.driver import EpochDriver


class Supervisor:
    """Watches Spark's query, and restarts it when its driver asks for a rewind.

    Args:
        driver: The query's driver.
        start: Lets Spark start.
    """

    def __init__(self, driver: EpochDriver, start: Callable[[], StreamingQuery]) -> None:
        self._driver, self._start = driver, start
        self._changed = threading.Condition()
        self._stopping = False
        self._over = False
        self._restarting = False
        self.past: list[StreamingQuery] = []
        self.current = start()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin to watch; only needed where a rewind can be asked for."""
        self._thread = InheritableThread(target=self._watch, name="tether-rewind", daemon=True)
        self._thread.start()

    def goes_on(self, ended: StreamingQuery) -> bool:
        """Whether another query of Spark's follows one that has ended, or already has.

        Ask after it was seen to have ended: the driver wants a rewind before Spark's query ends, and
        until another one has taken its place nobody may take the end for that of the query. No lock, as
        it is held while Spark starts, and Spark's listeners may ask. So the order counts: when the
        driver no longer wants a rewind the restart has begun, and when that is over it is done.
        """
        wanted = self._driver.rewind_wanted or self._restarting
        if self.current is not ended:
            return True
        return wanted and self._thread is not None and not self._over

    def settle(self, ended: StreamingQuery) -> bool:
        """Wait until it is known whether another query follows one of Spark's that has ended.

        Returns:
            Whether another one has taken its place.
        """
        with self._changed:
            if self._thread is not None:
                self._changed.wait_for(lambda: self._over or self.current is not ended)
            return self.current is not ended

    def stop(self, deadline: Deadline) -> None:
        """Do not restart any more, and let Spark stop."""
        with self._changed:
            self._stopping = True
            current = self.current
        current.stop()
        settle_checkpoints()
        if self._thread is not None:
            self._thread.join(deadline.left)

    def halt(self) -> None:
        """Stop Spark's query, because something else has failed."""
        with self._changed:
            self._stopping = True
            current = self.current
        current.stop()

    def _watch(self) -> None:
        try:
            while self._once():
                pass
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _once(self) -> bool:
        """Wait for Spark's query to end; restart it if it ended for a rewind."""
        try:
            self.current.awaitTermination()
        except Exception:
            if self._driver.outcome.failure is not None or not self._driver.rewind_wanted:
                return False  # it failed, which the handle reports
        if not self._driver.rewind_wanted:
            return False
        self._restarting = True  # the driver is about to want no rewind any more
        try:
            self._driver.rewind()
            with self._changed:
                if self._stopping:
                    return False
                self.past.append(self.current)
                self.current = self._start()
                self._restarting = False
                self._changed.notify_all()
        except Exception as error:
            self._driver.outcome.failed(error)
            return False
        return True
