"""Acknowledgements of one connection: at once where somebody waits, else a few together.

An acknowledgement says "everything up to here", so a later one makes an earlier one needless. Under a
stream of small batches the messages that go back, and the threads that wake up for them, cost more
than the rows do. So after an acknowledgement the next ones are held for two milliseconds, and go as one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.gateway.messages import Ack

HELD_SECONDS = 0.002
"""Longest time that an acknowledgement is held for others."""
_encode = msgspec.json.Encoder().encode


class Reminder:
    """Calls lines back after a while: one thread for all connections, which sleeps when nobody asks."""

    def __init__(self) -> None:
        self._asked: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, call: Callable[[], None]) -> None:
        """Call it back in ``HELD_SECONDS``, or a little later."""
        with self._changed:
            self._asked.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="acks", daemon=True)
                self._thread.start()
            elif len(self._asked) == 1:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked)
            time.sleep(HELD_SECONDS)
            with self._changed:
                due, self._asked = self._asked, []
            for call in due:
                call()


class AckLine:
    """What goes back to one producer.

    Args:
        writer: Of the call's metadata.
        reminder: Calls back for what is held.
    """

    def __init__(self, writer: Any, reminder: Reminder) -> None:
        self._writer, self._reminder = writer, reminder
        self._writing = threading.Lock()
        """Held while something is written; after ``close`` nothing is: the call is over then."""
        self._lock = threading.Lock()
        """Guards what is held, for moments: who takes rows in waits for nothing that is being sent."""
        self._last = 0.0
        self._held: Ack | None = None
        self._asked = False
        """Whether somebody will remind this line."""
        self._open = True

    def send(self, ack: Ack, *, at_once: bool = False) -> None:
        """Acknowledge; soon, or at once."""
        with self._lock:
            if self._held is not None:
                ack.rows += self._held.rows
                ack.duplicates += self._held.duplicates
            self._held = ack
            if not at_once and (self._asked or time.monotonic() - self._last < HELD_SECONDS):
                if not self._asked:
                    self._asked = True
                    self._reminder.ask(self._remind)
                return
        self._write()

    def close(self) -> None:
        """Say what is left to say; nothing is written afterwards."""
        with contextlib.suppress(Exception):  # nobody listens any more
            self._write()
        with self._writing:
            self._open = False

    def _remind(self) -> None:
        with self._lock:
            self._asked = False
        with contextlib.suppress(Exception):  # the call itself is told, and ends
            self._write()

    def _write(self) -> None:
        with self._writing:
            with self._lock:  # the newest, so that none comes after a later one
                ack, self._held = self._held, None
                self._last = time.monotonic()
            if ack is not None and self._open:
                self._writer.write(_encode(ack))
