"""How far an experiment is, and how long the rest will take."""

from __future__ import annotations

import statistics
from collections import defaultdict


class TimeLeft:
    """Estimates the rest from what each contender has taken so far.

    A contender that has not run yet is taken to need as long as the mean of those that have.

    Args:
        runs: Runs to come, by contender.

    Example:
        >>> left = TimeLeft({"a": 2, "b": 2})
        >>> left.ran("a", 10.0)
        >>> left.seconds()
        30.0
        >>> left.ran("b", 2.0)
        >>> left.seconds()
        12.0
    """

    def __init__(self, runs: dict[str, int]) -> None:
        self._left = dict(runs)
        self._all = sum(runs.values())
        self._took: defaultdict[str, list[float]] = defaultdict(list)

    def ran(self, contender: str, seconds: float) -> None:
        """A run has ended."""
        self._took[contender].append(seconds)
        self._left[contender] -= 1

    def known(self, contender: str) -> None:
        """A run needs not be made: it was measured before."""
        self._left[contender] -= 1

    def gone(self, contender: str) -> None:
        """No more runs of a contender: it is not here."""
        self._left[contender] = 0

    def seconds(self) -> float:
        """Estimate of the rest; 0 before anything has run."""
        each = {name: statistics.fmean(took) for name, took in self._took.items()}
        if not each:
            return 0.0
        typical = statistics.fmean(each.values())
        return sum(left * each.get(name, typical) for name, left in self._left.items())

    def line(self) -> str:
        """For people.

        Example:
            >>> left = TimeLeft({"a": 4})
            >>> left.ran("a", 50.0)
            >>> left.line()
            '[#####---------------] 1 of 4, about 2.5 min left'
        """
        done = self._all - sum(self._left.values())
        width = 20
        bar = "#" * (done * width // max(self._all, 1))
        seconds = self.seconds()
        rest = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
        return f"[{bar:-<{width}}] {done} of {self._all}, about {rest} left"
