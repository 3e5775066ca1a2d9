"""Bytes of backups, of models and sketches under the papers' settings of Θ: plain, packed and rounded.

In one process (``LocalPipeline``, with the real engine and the real frames). Plain frames hold 64 bits a
number, as Tether wrote them once; in packed ones a number has as many bytes as it needs, and is the same
number; rounded ones charge a part of θ for fewer bytes still. All memory is lost a few times, and the
answers are scored as in ``accuracy``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import tether
from bench.accuracy_cases import heavy_hitters, logistic_regression
from bench.harness import Experiment, Goal, say
from tether.backup import framecodec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from bench.accuracy_cases import Case

FAILURES = 3
ROUNDING = 0.25
"""Part of θ: with the usual target of a half, a quarter is left for drift between backups."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    rows = []
    for make in (heavy_hitters, logistic_regression):
        case = make(quick, seed)
        rows += [row for theta in case.budgets for row in _rows(case, theta)]

    def saved(case: str, how: str) -> float:
        of = {(row["case"], row["theta"], row["how"]): row["bytes"] for row in rows}
        return min(
            of[name, theta, "plain"] / of[name, theta, how]
            for name, theta, how_ in of
            if name == case and how_ == "plain"
        )

    goals = [
        Goal("backups.sketch_bytes_saved", ">=", 2.0, saved("heavy hitters", "packed")),
        Goal("backups.model_bytes_saved", ">=", 2.0, saved("logistic regression", "rounded")),
    ]
    report = Experiment("backups", seed=seed, repeats=1).report(goals, {"failures": FAILURES})
    return {**report, "results": rows}


def _rows(case: Case, theta: float) -> list[dict[str, Any]]:
    ways: dict[str, tuple[float, AbstractContextManager[Any]]] = {
        "plain": (0.0, patch.object(framecodec, "packed", _as_they_are)),
        "packed": (0.0, nullcontext()),
        "rounded": (ROUNDING, nullcontext()),
    }
    found = []
    for how, (rounding, way) in ways.items():
        say(f"backups: {case.name}, Θ = {theta:g}, {how}")
        with way:
            score = case.after(FAILURES, tether.Approximate(theta, rounding=rounding))
        found.append(
            {
                "contender": f"{case.name}, Θ = {theta:g}, {how}",
                "case": case.name,
                "theta": theta,
                "how": how,
                "bytes": score["backup_bytes"],
                **score,
            }
        )
    return found


def _as_they_are(batches: Sequence[Any]) -> tuple[Sequence[Any], bool]:
    return batches, False
