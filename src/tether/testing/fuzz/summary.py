"""What many random programs have shown."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from tether.testing.fuzz.shrinking import kind_of

if TYPE_CHECKING:
    from tether.testing.fuzz.running import Outcome


class Summary:
    """Sums over programs."""

    def __init__(self) -> None:
        self.programs = self.looked = self.epochs = self.lives = 0
        self.findings: Counter[str] = Counter()
        self.seeds: list[int] = []
        """Seeds of programs with findings."""
        self.struck: Counter[tuple[str, str]] = Counter()
        self.ended = 0
        """Programs that were refused in good order before their end."""
        self.looseness: list[float] = []
        self.seconds: list[float] = []

    def add(self, seed: int, outcome: Outcome) -> None:
        """One more program is done."""
        self.programs += 1
        self.looked += outcome.looked
        self.epochs += outcome.epochs
        self.lives += outcome.lives
        self.ended += bool(outcome.ended)
        self.struck.update(outcome.struck)
        self.looseness += outcome.looseness
        self.seconds.append(outcome.seconds)
        if outcome.findings:
            self.seeds.append(seed)
            self.findings[kind_of(outcome.findings[0])] += 1

    def loose(self, share: float) -> float | None:
        """A quantile of told bound to true error, over wrong answers of which a number was told."""
        told = [one for one in self.looseness if one < math.inf]
        if len(told) < 2:
            return None
        return statistics.quantiles(told, n=100)[round(100 * share) - 1]

    def line(self) -> str:
        """All of it in a line."""
        return (
            f"{self.programs} programs, {self.epochs} epochs in {self.lives} lives, "
            f"{self.looked} answers judged, {self.ended} ended early in good order, "
            f"{len(self.seeds)} with findings"
        )

    def lines(self) -> list[str]:
        """What was struck, what was found, and how loose bounds were."""
        lines = [
            f"  {number:6} × {action} at {point}"
            for (point, action), number in sorted(self.struck.items())
        ]
        middle, high = self.loose(0.5), self.loose(0.95)
        if middle is not None and high is not None:
            lines.append(f"  told bound to true error: median {middle:.2f}, 95 % below {high:.2f}")
        lines += [f"  {number:6} × {kind}" for kind, number in self.findings.most_common()]
        return lines
