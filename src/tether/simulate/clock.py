"""Virtual time: events in order of (time, number), so that a seed always gives the same run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

Doing = Generator[float | None, None, None]
"""A process in virtual time: yields the time at which it continues, or None until it is woken."""


class Clock:
    """Runs scheduled calls at their times; calls of the same time in the order of scheduling.

    Example:
        >>> clock, seen = Clock(), []
        >>> clock.at(2.0, seen.append, "late")
        >>> clock.at(1.0, seen.append, "early")
        >>> clock.run()
        >>> seen, clock.now
        (['early', 'late'], 2.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        """Virtual seconds since the start."""
        self.events = 0
        """Events so far."""
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, time: float, call: Callable[..., object], *args: Any) -> None:
        """Schedule a call; if the time is past, it comes next after calls that are due earlier."""
        self._asked += 1
        heappush(self._queue, (max(time, self.now), self._asked, call, args))

    def step(self) -> bool:
        """Carry out the next event; False if there is none."""
        if not self._queue:
            return False
        self.now, _, call, args = heappop(self._queue)
        self.events += 1
        call(*args)
        return True

    def run(self) -> None:
        """Carry out all events, including new ones."""
        while self.step():
            pass
