"""Which slots are worth a copy: planners against each other and the optimum, fidelity against answers.

PPA 2016, figures 12 to 14 in shape. Figures 12 and 13 run the paper's two queries, in one process, with
every slot that has no copy lost: how much of the true answer is left, against the fidelity that the plan
promised. Figure 14 compares planners on random topologies. With ``--resume`` a run that was interrupted
goes on: every chunk of topologies and every point of a curve is kept as it ends.
"""

from __future__ import annotations

import os
import statistics
from functools import partial
from typing import Any

from bench.harness import Goal, environment, say
from bench.planning_queries import QUERIES, Point, fidelity_against_answers
from bench.planning_topologies import (
    SHARES,
    Compared,
    against_greedy,
    against_optimum,
    seconds_of_large,
)
from bench.results import FOLDER, ResultLog, file_name

SCARCE = (0.1, 1 / 3)
"""Parts of the slots that may be copied where copies are scarce."""


CHUNK = 5
"""Topologies of a kind that are kept together."""


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    """Compare planners, then promises with answers.

    Args:
        quick: Fewer topologies, fewer numbers of copies.
        seed: Of topologies and rows.
        resume: Go on with a run that was interrupted: what has been measured is not measured again.
    """
    at_start = environment(seed, os.getloadavg()[0])
    topologies = 8 if quick else 100
    path = FOLDER / "planning" / f"{file_name('planning', quick=quick)}.jsonl"
    log = ResultLog(path, {"seed": seed, "topologies": topologies}, resume=resume)
    small, to_bound, left_out = _to_optimum(log, topologies, seed)
    random = _to_greedy(log, topologies, seed)
    answers = {
        query: fidelity_against_answers(query, quick=quick, seed=seed, log=log) for query in QUERIES
    }
    large = [log.once("large", at, partial(_seconds, seed + at)) for at in range(2 if quick else 5)]
    seconds = [one["seconds"] for one in large]
    scarce = [one for one in random if one.structured and SCARCE[0] <= one.share <= SCARCE[1]]
    goals = [
        Goal("planning.sa_to_optimal", ">=", 0.95, statistics.fmean(small)),
        Goal("planning.sa_to_greedy_scarce", ">=", 1.5, _ratio_of_means(scarce)),
        Goal("planning.fidelity_error_q1", "<=", 0.1, _error(answers["q1"])),
        Goal("planning.fidelity_error_q2", "<=", 0.1, _error(answers["q2"])),
        Goal("planning.seconds_1000", "<=", 10, statistics.median(seconds)),
    ]
    times = [1000 * one for one in seconds]
    result = {
        "contender": "tether: structure-aware plan, copies for a third of 1,000 slots",
        "workload": {"slots": 1_000, "topologies": topologies},
        "repeats": len(seconds),
        "median_ms": round(statistics.median(times), 1),
        "spread_ms": [round(min(times), 1), round(max(times), 1)],
        "answer_checked": True,
        "detail": {
            "compared_with_the_optimum": len(small),
            "least_of_the_optimum": round(min(small), 4),
            "of_them_with_a_bound": to_bound,
            "too_large_for_the_optimum": left_out,
            "greedy_without_any_output": round(
                statistics.fmean(one.greedy == 0 for one in scarce), 3
            ),
            "fidelity_error_q1_where_servers_are_alike": round(_error(answers["q1-spread"]), 4),
            "assumed": {name: query.assumed for name, query in QUERIES.items()},
        },
    }
    return {
        "experiment": "planning",
        "environment": at_start,
        "results": [result],
        "goals": [goal.plain() for goal in goals],
        "figure_12_13": {
            query: [point._asdict() for point in points] for query, points in answers.items()
        },
        "figure_14": _means(random),
    }


def _chunks(topologies: int, seed: int) -> list[list[int]]:
    seeds = [seed * 10_000 + at for at in range(topologies)]
    return [seeds[first : first + CHUNK] for first in range(0, topologies, CHUNK)]


def _to_optimum(log: ResultLog, topologies: int, seed: int) -> tuple[list[float], int, int]:
    """Structure-aware plans to the optimum, how many to a bound; how many topologies were too large."""
    ratios: list[float] = []
    to_bound = left_out = 0
    for number, seeds in enumerate(_chunks(topologies, seed)):
        found = log.once("optimum", number, lambda: against_optimum(seeds)._asdict())  # noqa: B023 - called at once
        ratios += found["ratios"]
        to_bound += found["to_bound"]
        left_out += found["left_out"]
        _progress("against the optimum", number, topologies)
    return ratios, to_bound, left_out


def _to_greedy(log: ResultLog, topologies: int, seed: int) -> list[Compared]:
    found: list[Compared] = []
    for number, seeds in enumerate(_chunks(topologies, seed)):
        some = log.once("greedy", number, lambda: {"compared": against_greedy(seeds)})  # noqa: B023 - called at once
        found += [Compared(*one) for one in some["compared"]]
        _progress("against greedy", number, topologies)
    return found


def _progress(what: str, number: int, topologies: int) -> None:
    done = min(CHUNK * (number + 1), topologies)
    say(f"planning: {what}, {done} of {topologies} of each kind")


def _seconds(seed: int) -> dict[str, float]:
    return {"seconds": seconds_of_large(1_000, seed)}


def _error(points: list[Point]) -> float:
    """Mean distance of fidelity and accuracy, over all numbers of copies, of structure-aware plans."""
    ours = [point for point in points if point.planner == "structure-aware"]
    return statistics.fmean(abs(point.predicted - point.accuracy) for point in ours)


def _ratio_of_means(found: list[Any]) -> float:
    # Not the mean of ratios: greedy often has no output at all.
    return statistics.fmean(x.aware for x in found) / statistics.fmean(x.greedy for x in found)


def _means(found: list[Any]) -> list[dict[str, Any]]:
    """Mean fidelity of both planners, by specification and share."""
    rows = []
    for name in dict.fromkeys(one.specification for one in found):
        for share in SHARES:
            some = [x for x in found if x.specification == name and x.share == share]
            rows.append(
                {
                    "specification": name,
                    "share": round(share, 3),
                    "structure-aware": round(statistics.fmean(x.aware for x in some), 4),
                    "greedy": round(statistics.fmean(x.greedy for x in some), 4),
                }
            )
    return rows
