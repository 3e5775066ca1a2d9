"""One form for all experiments: interleaved repeats, medians with spread, checked answers, goals."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Measurement:
    """One run of one contender."""

    epoch_ms: list[float]
    """Time of each measured epoch, warm-up left out."""
    answer_checked: bool
    """Whether the run's answer was compared with the truth, and was equal or within its bound."""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def median_ms(self) -> float:
        """Median epoch of this run."""
        return statistics.median(self.epoch_ms)


@dataclass(frozen=True)
class Goal:
    """A figure that an issue asks for, and what was measured."""

    id: str
    relation: Literal["<=", ">="]
    target: float
    value: float

    def plain(self) -> dict[str, Any]:
        """As the JSON report shows it."""
        met = self.value <= self.target if self.relation == "<=" else self.value >= self.target
        return {
            "id": self.id,
            "target": f"{self.relation} {self.target:g}",
            "value": round(self.value, 4),
            "met": met,
        }


class Experiment:
    """Runs contenders in turn, round after round, so that a noisy minute hits all of them alike.

    Args:
        name: Name of the experiment.
        seed: Seed of the generated data.
        repeats: Rounds.
    """

    def __init__(self, name: str, *, seed: int, repeats: int) -> None:
        self.name, self.seed, self.repeats = name, seed, repeats
        self.runs: dict[str, list[Measurement]] = {}
        self._load_at_start = os.getloadavg()[0]

    def measure(
        self, contenders: dict[str, Callable[[], Measurement]], *, warm_up: bool = True
    ) -> None:
        """Run every contender once per round; each round begins with another one.

        Before the first round its first contender runs once without being counted: whoever comes
        first would else pay for Spark's own warming up. May be called again, for other contenders.
        """
        names = list(contenders)
        if warm_up:
            say(f"{self.name}: warming up with {names[0]}")
            contenders[names[0]]()
        self.runs |= {name: [] for name in names}
        for round_ in range(self.repeats):
            first = round_ % len(names)
            for name in names[first:] + names[:first]:
                result = contenders[name]()
                if not result.answer_checked:
                    raise AssertionError(f"{name} gave a wrong answer: its time does not count")
                self.runs[name].append(result)
                say(
                    f"{self.name}: round {round_ + 1} of {self.repeats}, {name}: "
                    f"{result.median_ms:.0f} ms"
                )

    def median(self, contender: str) -> float:
        """Median over rounds of the median epoch, in milliseconds."""
        return statistics.median(run.median_ms for run in self.runs[contender])

    def ratio(self, contender: str, to: str) -> float:
        """Median over rounds of the ratio within the round: what the machine did cancels out."""
        pairs = zip(self.runs[contender], self.runs[to], strict=True)
        return statistics.median(one.median_ms / other.median_ms for one, other in pairs)

    def report(self, goals: list[Goal], workload: dict[str, Any]) -> dict[str, Any]:
        """The JSON object that ``tether bench --json`` prints."""
        return {
            "experiment": self.name,
            "environment": environment(self.seed, self._load_at_start),
            "results": [
                {
                    "contender": name,
                    "workload": workload,
                    "repeats": len(runs),
                    "median_ms": round(self.median(name), 2),
                    "spread_ms": [
                        round(min(run.median_ms for run in runs), 2),
                        round(max(run.median_ms for run in runs), 2),
                    ],
                    "answer_checked": all(run.answer_checked for run in runs),
                    "detail": runs[-1].detail,
                }
                for name, runs in self.runs.items()
            ],
            "goals": [goal.plain() for goal in goals],
        }


def environment(seed: int, load: float) -> dict[str, Any]:
    """What the figures depend on besides the code."""
    names = ("pyspark", "numpy", "pyarrow")
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
        "seed": seed,
        "load_at_start": round(load, 2),
    }


def say(text: str) -> None:
    """Progress for people, apart from the JSON on standard output."""
    print(text, file=sys.stderr, flush=True)
