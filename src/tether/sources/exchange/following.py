"""Following an exchange in a store that may hang: who looks at it never waits for it for long.

A network that is cut often says nothing at all: a request gets no answer, for a minute or more. So
objects are fetched by a thread, and what has come by the next look counts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from tether.core.errors import BackupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.exchange.entries import Entry
    from tether.sources.exchange.log import ExchangeLog

GIVEN_UP_AFTER = 10.0
"""Seconds after which a request without an answer is made anew: the network may be back by then, and the
old connection never be heard of again."""
AT_A_TIME = 0.5
"""Seconds after which what has been fetched is given, though there may be more."""


class Fetched(NamedTuple):
    """Entries that have come, and what kept more from coming."""

    entries: list[Entry]
    error: BackupError | None = None
    more: bool = False
    """Whether there may be more, and nothing keeps it from coming."""


def fetch(log: ExchangeLog, first: int, end: int | None, seconds: float = float("inf")) -> Fetched:
    """All entries from one number on, or up to another; after some seconds those so far."""
    found: list[Entry] = []
    over = time.monotonic() + seconds
    try:
        while end is None or first + len(found) < end:
            entry = log.entry(first + len(found))
            if entry is None:
                return Fetched(found)
            found.append(entry)
            if time.monotonic() > over:
                return Fetched(found, more=True)
    except BackupError as error:
        return Fetched(found, error)
    return Fetched(found)


class Follower:
    """Follows one exchange.

    Guarantee: no call takes longer than it was given, whatever the store does.

    Args:
        log: The exchange.
        given_up_after: Seconds; see ``GIVEN_UP_AFTER``.
    """

    def __init__(self, log: ExchangeLog, given_up_after: float = GIVEN_UP_AFTER) -> None:
        self._log, self._given_up_after = log, given_up_after
        self._reading, self._noting = _Errand(), _Errand()

    def next(self, first: int, end: int | None, seconds: float) -> Fetched:
        """Entries from a number on, as far as they come within some seconds.

        While an earlier request has no answer yet, nothing is waited for.
        """
        late = self._reading.future is not None
        if late and self._reading.seconds > self._given_up_after:
            self._reading, late = self._reading.given_up(), False
        if not late:
            self._reading.send(lambda: fetch(self._log, first, end, AT_A_TIME))
        found = self._reading.result(0.0 if late else seconds)
        if found is None:
            return Fetched([])
        # The view may have gone on since the request was made.
        return found._replace(entries=[each for each in found.entries if each.number >= first])

    def note(self, what: Callable[[], None]) -> None:
        """Have something written; not at all while the one before is still being written."""
        if self._noting.busy:
            if self._noting.seconds <= self._given_up_after:
                return
            self._noting = self._noting.given_up()
        self._noting.send(lambda: _quietly(what))


def _quietly(what: Callable[[], None]) -> Fetched:
    with contextlib.suppress(BackupError):  # the next note says it again
        what()
    return Fetched([])


class _Errand:
    """A thread that does one thing at a time."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[tuple[Callable[[], Fetched], Future[Fetched]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._over = False
        self.future: Future[Fetched] | None = None
        """What was sent last, until its result is taken."""

    @property
    def busy(self) -> bool:
        return self.future is not None and not self.future.done()

    @property
    def seconds(self) -> float:
        """Since it was sent."""
        return time.monotonic() - self._since

    def send(self, what: Callable[[], Fetched]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tether-follower", daemon=True)
            self._thread.start()
        self.future, self._since = Future(), time.monotonic()
        self._todo.put((what, self.future))

    def result(self, seconds: float) -> Fetched | None:
        """What came of it, if it comes within some seconds."""
        assert self.future is not None
        try:
            found = self.future.result(seconds)
        except TimeoutError:
            return None
        self.future = None
        return found

    def given_up(self) -> _Errand:
        """Another one in its place; this one ends when its request does."""
        self._over = True
        return _Errand()

    def _run(self) -> None:
        while not self._over:
            what, future = self._todo.get()
            try:
                future.set_result(what())
            except BaseException as error:  # whoever asks is told
                future.set_exception(error)
