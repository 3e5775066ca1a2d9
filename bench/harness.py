"""One form for all experiments: interleaved repeats, medians with spread, checked answers, goals."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from bench.progress import TimeLeft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.results import ResultLog


class NotHere(Exception):  # noqa: N818 - no error of ours: it says why a peer is left out
    """A contender cannot run on this machine; says why, and what would make it run."""


@dataclass(frozen=True)
class Measurement:
    """One run of one contender."""

    epoch_ms: list[float]
    """Time of each measured epoch, warm-up left out."""
    answer_checked: bool
    """Whether the run's answer was compared with the truth, and was equal or within its bound."""
    detail: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None
    """Rows in one of these epochs, where contenders differ in it: they are compared per row then."""

    @property
    def median_ms(self) -> float:
        """Median epoch of this run."""
        return statistics.median(self.epoch_ms)

    @property
    def cost(self) -> float:
        """What is compared: the median epoch, per row where the number of rows is known."""
        return self.median_ms / (self.rows or 1)


@dataclass(frozen=True)
class Goal:
    """A figure that an issue asks for, and what was measured."""

    id: str
    relation: Literal["<=", ">="]
    target: float
    value: float | None
    why: str = ""
    """Why there is no value."""

    def plain(self) -> dict[str, Any]:
        """As the JSON report shows it."""
        if self.value is None:
            target = f"{self.relation} {self.target:g}"
            return {"id": self.id, "target": target, "value": None, "met": False, "why": self.why}
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
        log: Where repeats are kept as they end, and found again.
    """

    def __init__(self, name: str, *, seed: int, repeats: int, log: ResultLog | None = None) -> None:
        self.name, self.seed, self.repeats = name, seed, repeats
        self.runs: dict[str, list[Measurement]] = {}
        self.skipped: dict[str, str] = {}
        self._log = log
        self._load_at_start = os.getloadavg()[0]

    def measure(
        self,
        contenders: Mapping[str, Callable[[], Measurement]],
        *,
        warm_up: bool = True,
        repeats: int | None = None,
    ) -> None:
        """Run every contender once per round; each round begins with another one.

        Before the first round its first contender runs once without being counted: otherwise the
        first contender would pay for Spark's own warming up. A contender that is not here is left out
        with a line that says why. Repeats that the log holds are not run again. May be called
        again, for other contenders, and with ``repeats`` of their own where less is at stake.
        """
        names, repeats = list(contenders), repeats or self.repeats
        left = TimeLeft(dict.fromkeys(names, repeats))
        if warm_up and not all(
            self._logged(name, round_) for name in names for round_ in range(repeats)
        ):
            self._warm_up(contenders)
        for name in self.skipped:
            left.gone(name)
        self.runs |= {name: [] for name in names}
        for round_ in range(repeats):
            first = round_ % len(names)
            for name in names[first:] + names[:first]:
                if name in self.skipped:
                    continue
                result = self._logged(name, round_)
                if result is None:
                    begin = time.monotonic()
                    result = self._run(name, contenders[name])
                    if result is None:
                        left.gone(name)
                        continue
                    left.ran(name, time.monotonic() - begin)
                    if self._log is not None:
                        self._log.add(name, round_, result)
                else:
                    left.known(name)
                self.runs[name].append(result)
                say(
                    f"{self.name}: round {round_ + 1} of {repeats}, {name}: "
                    f"{result.median_ms:.0f} ms  {left.line()}"
                )

    def recall(self, *names: str) -> bool:
        """Whether the log has all repeats of these: then they are taken from it, and need no run."""
        if not all(self._logged(name, at) for name in names for at in range(self.repeats)):
            return False
        self.measure(dict.fromkeys(names, _never))
        return True

    def _logged(self, name: str, round_: int) -> Measurement | None:
        return self._log.get(name, round_) if self._log is not None else None

    def _warm_up(self, contenders: Mapping[str, Callable[[], Measurement]]) -> None:
        for name, contender in contenders.items():
            say(f"{self.name}: warming up with {name}")
            if self._run(name, contender) is not None:
                return

    def _run(self, name: str, contender: Callable[[], Measurement]) -> Measurement | None:
        """One run with a right answer; None where the contender is not here."""
        try:
            result = contender()
        except NotHere as reason:
            self.skipped[name] = str(reason)
            self.runs.pop(name, None)
            say(f"{self.name}: leaving out {name}: {reason}")
            return None
        if not result.answer_checked:
            raise AssertionError(f"{name} gave a wrong answer: its time does not count")
        return result

    def median(self, contender: str) -> float:
        """Median over rounds of the median epoch, in milliseconds."""
        return statistics.median(run.median_ms for run in self.runs[contender])

    def ratio(self, contender: str, to: str) -> float:
        """Median over rounds of the ratio within the round: what the machine did cancels out."""
        pairs = zip(self.runs[contender], self.runs[to], strict=True)
        return statistics.median(one.cost / other.cost for one, other in pairs)

    def goal(
        self, id_: str, relation: Literal["<=", ">="], target: float, contender: str, to: str
    ) -> Goal:
        """A goal on a ratio; without a value where one of the two was left out."""
        for name in (contender, to):
            if not self.runs.get(name):
                why = self.skipped.get(name, "it is not among the contenders")
                return Goal(id_, relation, target, None, f"{name} was not measured: {why}")
        return Goal(id_, relation, target, self.ratio(contender, to))

    def report(self, goals: list[Goal], workload: dict[str, Any]) -> dict[str, Any]:
        """The JSON object that ``tether bench --json`` prints."""
        return {
            "experiment": self.name,
            "environment": environment(self.seed, self._load_at_start),
            "results": [
                self._result(name, runs, workload) for name, runs in self.runs.items() if runs
            ],
            "skipped": self.skipped,
            "goals": [goal.plain() for goal in goals],
        }

    def _result(
        self, name: str, runs: list[Measurement], workload: dict[str, Any]
    ) -> dict[str, Any]:
        medians = [round(run.median_ms, 2) for run in runs]
        result = {
            "contender": name,
            "workload": workload,
            "repeats": len(runs),
            "median_ms": round(self.median(name), 2),
            "spread_ms": [min(medians), max(medians)],
            "runs_ms": medians,
            "answer_checked": all(run.answer_checked for run in runs),
            "detail": runs[-1].detail,
        }
        if runs[-1].rows is not None:
            rate = statistics.median(run.rows / run.median_ms for run in runs if run.rows) * 1_000
            result |= {"rows_per_epoch": runs[-1].rows, "rows_per_second": round(rate)}
        return result


def _never() -> Measurement:
    raise AssertionError("it was measured before")


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
