"""Whether what is told is true: random programs under random failures, planted faults, real kills.

Programs run on the shipped runtime in one process each, and an independent judge looks at every answer
(``docs/truth.md``). What planted faults (``make mutants``) and the kills of the tests (``make test``)
have shown is read from ``.truth``, where it is of this commit. Programs are kept there as they end: with
``--resume`` those that are there do not run again, but for findings of an earlier code.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants.commit import commit
from mutants.reading import catalogue
from mutants.results import known

from bench.harness import Goal, environment, say
from tether.testing.fuzz.many import outcomes
from tether.testing.fuzz.record import Record
from tether.testing.fuzz.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS, QUICK = 20_000, 400
SEEDS_APART = 1_000_000
"""Programs of one seed of the experiment come before those of the next."""
ROOT = Path(__file__).parents[1]
MUTANTS, KILLS = ROOT / ".truth" / "mutants.json", ROOT / ".truth" / "kills.json"


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    at_start = environment(seed, os.getloadavg()[0])
    first, programs = seed * SEEDS_APART, QUICK if quick else PROGRAMS
    seeds, record = range(first, first + programs), Record()
    _judge(record.missing(seeds) if resume else seeds, record)
    summary = Summary()
    for each in seeds:
        summary.add(each, record.ran[each].outcome)
    middle, high = summary.loose(0.5), summary.loose(0.95)
    nothing = "no answer was wrong"
    goals = [
        Goal("truth.programs", ">=", programs, summary.programs),
        Goal("truth.violations", "<=", 0, len(summary.seeds)),
        Goal("truth.bound_to_error_median", "<=", 3, middle, nothing),
        Goal("truth.bound_to_error_p95", "<=", math.inf, high, nothing),
        _mutants(quick=quick, seed=seed),
        _kills(),
    ]
    times = [1000 * seconds for seconds in summary.seconds]
    result = {
        "contender": "tether: random programs under random failures",
        "workload": {"first_seed": first, "last_seed": first + programs - 1},
        "repeats": summary.programs,
        "median_ms": round(statistics.median(times), 1),
        "spread_ms": [round(min(times), 1), round(max(times), 1)],
        "answer_checked": True,
        "detail": {
            "answers_judged": summary.looked,
            "epochs": summary.epochs,
            "drivers": summary.lives,
            "ended_early_in_good_order": summary.ended,
            "wrong_answers": len(summary.looseness),
            "seeds_with_findings": summary.seeds,
            "seeds_with_findings_mended": sorted(record.mended.intersection(seeds)),
            "programs_by_code": record.by_code(seeds),
            "findings": dict(summary.findings),
            "struck": {f"{act} at {at}": n for (at, act), n in sorted(summary.struck.items())},
        },
    }
    return {
        "experiment": "truth",
        "environment": at_start,
        "results": [result],
        "goals": [goal.plain() for goal in goals],
    }


def _judge(seeds: Sequence[int], record: Record) -> None:
    summary, told = Summary(), time.monotonic()
    say(f"truth: {len(seeds)} programs to run")
    for seed, outcome in outcomes(seeds, None, os.cpu_count() or 1):
        record.add(seed, outcome)
        summary.add(seed, outcome)
        for finding in outcome.findings[:1]:
            say(f'truth: FOUND: {finding}; again: make fuzz ARGS="--replay {seed}"')
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(f"truth: {summary.line()}")


def _mutants(*, quick: bool, seed: int) -> Goal:
    """Planted faults that no test notices: what is known and holds still, or found out now."""
    name = "truth.mutants_surviving"
    if not (ROOT / "mutants").is_dir():
        return Goal(name, "<=", 0, None, "make mutants is not here")
    tries = [one for one in catalogue() if not one.survives]
    if len(known(tries)) == len(tries):
        return Goal(name, "<=", 0, 0)  # a test has noticed each, and all of that holds still
    report = _of_this_commit(MUTANTS)
    if report is None or (report["quick"] and not quick):
        say("truth: planting faults")
        command = [sys.executable, "-m", "mutants", "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--quick"] if quick else command, cwd=ROOT, stdout=sys.stderr, check=False
        )
        report = _of_this_commit(MUTANTS)
        if report is None:
            return Goal(name, "<=", 0, None, f"make mutants ended with status {done.returncode}")
    return Goal(name, "<=", 0, report["surviving"])


def _kills() -> Goal:
    """Points that saw a real SIGKILL, as the last run of the tests has noted."""
    report = _of_this_commit(KILLS)
    why = "no test has noted its kills for this commit: run make test first"
    return Goal("truth.points_killed", ">=", 1, None if report is None else report["share"], why)


def _of_this_commit(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return report if report["commit"] == commit() else None
