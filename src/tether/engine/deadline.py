"""One time limit for several waits in a row: each takes what the ones before have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.engine.ports import SystemClock

if TYPE_CHECKING:
    from tether.engine.ports import Clock


class Deadline:
    """A moment until which one may wait.

    Args:
        seconds: From now on.
        clock: The time; the machine's by default.

    Example:
        >>> class Stopped:
        ...     now = 5.0
        ...     def seconds(self): return self.now
        >>> clock = Stopped()
        >>> deadline = Deadline(60, clock)
        >>> clock.now += 45
        >>> deadline.left
        15.0
        >>> clock.now += 45
        >>> deadline.left, deadline.passed
        (0.0, True)
    """

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._end = self._clock.seconds() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self._end - self._clock.seconds())

    @property
    def passed(self) -> bool:
        """Whether it has passed."""
        return self.left == 0.0
