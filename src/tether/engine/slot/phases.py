"""Where the time of a slot's epoch goes."""

from __future__ import annotations

import time


class Phases:
    """A stopwatch that charges the time since its last mark to a named phase.

    Example:
        >>> phases = Phases()
        >>> phases.end("attach"); phases.end("process"); phases.end("attach")
        >>> sorted(phases.seconds)
        ['attach', 'process']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._mark = time.perf_counter()

    def end(self, phase: str) -> None:
        """Charge the time since the last mark to ``phase``."""
        now = time.perf_counter()
        self.add(phase, now - self._mark)
        self._mark = now

    def add(self, phase: str, seconds: float) -> None:
        """Charge seconds that were measured elsewhere."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def restart(self) -> None:
        """Charge the time since the last mark to nobody."""
        self._mark = time.perf_counter()
