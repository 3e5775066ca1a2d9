"""Work that epochs leave behind, done in order on a thread that is there only while there is some."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_SECONDS = 1.5
"""A thread without work for so long ends; the next piece of work starts another."""
MOST = 2_000
"""Largest number of pieces of work that wait; beyond it, the oldest one that may be skipped is
skipped."""
_log = logging.getLogger("tether.feed")


class Backstage:
    """Does pieces of work one after the other; handing one over takes microseconds.

    Args:
        idle: Called now and then while the thread is there, and before it ends.

    Example:
        >>> done = []
        >>> stage = Backstage()
        >>> stage.do(lambda: done.append("this")); stage.do(lambda: done.append("that"))
        >>> stage.finish(10), done
        (True, ['this', 'that'])
    """

    def __init__(self, idle: Callable[[], None] | None = None) -> None:
        self._idle = idle
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self.left_out = 0
        """Pieces that were never done because too many waited."""

    def do(self, work: Callable[[], None], *, must: bool = True) -> None:
        """Do this after all that waits; where too much does, only what must be."""
        with self._changed:
            if not must and len(self._work) >= MOST:
                self.left_out += 1
                return
            self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tether-feed", daemon=True)
                self._thread.start()
            else:
                self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Wait until nothing waits; tell whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._work and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                more = self._changed.wait_for(lambda: bool(self._work), IDLE_SECONDS)
                self._busy = True
                work = self._work.popleft() if more else None
            for piece in filter(None, (work, self._idle)):
                try:
                    piece()
                except Exception:  # the feed is never worth a query
                    _log.exception("A part of the feed was lost")
            with self._changed:
                if work is None and not self._work:
                    self._thread, self._busy = None, False
                    self._changed.notify_all()
                    return
