"""Holds main between two epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch
from tether.engine.deadline import Deadline
from tether.spark.logs.checkpoint import COMMIT_SECONDS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Gate:
    """A gate that main passes with every epoch.

    Args:
        changed: Notified of every change; the caller holds its lock.
        committed: Whether Spark has committed an epoch.
        over: Whether waiting is over because the query ends.
    """

    def __init__(
        self,
        changed: threading.Condition,
        committed: Callable[[Epoch], bool],
        over: Callable[[], bool],
    ) -> None:
        self._changed, self._committed, self._over = changed, committed, over
        self._held = self._in_epoch = False

    @property
    def held(self) -> bool:
        """Whether main may begin no epoch."""
        return self._held

    @property
    def in_epoch(self) -> bool:
        """Whether main is running an epoch."""
        return self._in_epoch

    def hold(self) -> None:
        """Let main begin no further epoch. The caller holds the lock."""
        self._held = True

    def release(self) -> None:
        """Let main go on. The caller holds the lock, and notifies main."""
        self._held = False

    def enter(self) -> None:
        """Begin an epoch, when main is not held.

        Raises:
            InterruptedError: The query ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self.held or self._over())
            if self._over():
                raise InterruptedError("the query is being stopped")
            self._in_epoch = True

    def leave(self) -> None:
        """End an epoch."""
        with self._changed:
            self._in_epoch = False
            self._changed.notify_all()

    def stands(self, last: Epoch) -> bool:
        """Whether main is held after its epoch ``last``, and Spark has committed that one."""
        if self.in_epoch or not self.held:
            return False
        # Spark writes its entry just after main has left the epoch.
        deadline = Deadline(COMMIT_SECONDS)
        while last >= 0 and not self._committed(last):
            if self._over() or deadline.passed:
                return False
            self._changed.wait(0.01)
        return not self.in_epoch
