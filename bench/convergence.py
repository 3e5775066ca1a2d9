"""Convergence of online learning under failures: AF-Stream 2019, experiments 6 to 9, in shape.

Iterations are counted, not seconds: on this one machine all slots share two cores, so the time of an
iteration says nothing of a cluster's. Seconds of work are given beside. The consistency models run on
Spark too, where the staleness that slots really saw is what counts.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tether
from bench import algorithm_streams
from bench.convergence_plots import draw
from bench.convergence_runs import generated, learn
from bench.harness import Goal, environment, say
from bench.streams import scratch
from tether.cli.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.convergence_runs import Run, Trace

BUDGET = 0.01
"""The paper's Θ, in Euclidean distance of the model."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    trace = generated(60 if quick else 150, 2_200 if quick else 5_500, seed)
    plots = Path(os.environ.get("TETHER_PLOTS", Path(__file__).parent / "plots"))
    results: list[dict[str, Any]] = []
    files: list[str] = []

    def compare(name: str, title: str, options: dict[str, dict[str, Any]]) -> dict[str, float]:
        runs: dict[str, Run] = {}
        for label, chosen in options.items():
            say(f"convergence: {name}, {label}")
            runs[label] = learn(trace, **chosen)
        files.extend(draw(plots, f"convergence-{name}", title, runs))
        delays = {}
        base = next(iter(runs.values()))
        for label, one in runs.items():
            results.append(_row(f"{name}: {label}", base, one, trace))
            row = results[-1]
            delays[label] = max(row["delay_percent"], row["delay_of_loss_percent"])
        return delays

    delays = compare(
        "failures",
        "Local workers killed after a tenth of the stream, Θ = 0.01",
        {
            "no failure": {"budget": BUDGET},
            "4 failures": {"budget": BUDGET, "failures": 4},
            "8 failures": {"budget": BUDGET, "failures": 8},
            "8 failures, Θ = 10": {"budget": 10.0, "failures": 8},
            "8 losses of everything": {"budget": BUDGET, "failures": 8, "everything": True},
            "no failure, no tolerance": {"budget": None},
        },
    )
    harsh = {"failures": 8, "everything": True}
    compare(
        "budgets",
        "Θ, with 8 losses of all memory",
        {
            "no failure": {"budget": BUDGET},
            **{f"Θ = {budget:g}": {"budget": budget, **harsh} for budget in (0.01, 0.1, 1.0, 10.0)},
        },
    )
    compare(
        "items",
        "L, with 8 losses of all memory and a source that cannot replay, Θ = 0.01",
        {
            "no failure": {"budget": BUDGET},
            **{
                f"L = {items}": {"budget": BUDGET, "lost_items": items, **harsh}
                for items in (0, 200, 2_000)
            },
        },
    )
    random = np.random.default_rng(seed).integers(0, 10, len(trace.iterations))
    models: dict[str, int | Callable[[int], int]] = {
        "BSP": 0,
        "SSP-5": 5,
        "SSP-10": 10,
        "ASP": lambda epoch: int(random[epoch]),
    }
    for failures in (0, 4, 8):
        compare(
            f"models-{failures}-failures",
            f"Consistency models, {failures} failures, Θ = 0.01; SSP at its worst, ASP at random",
            {
                name: {"budget": BUDGET, "failures": failures, "staleness": staleness}
                for name, staleness in models.items()
            },
        )
    on_spark = _staleness_on_spark(quick, seed)
    goals = [
        # The worse of the paper's failures and of losses of everything, by norm and by loss.
        Goal(
            "convergence.delay_8_failures",
            "<=",
            13.3,
            max(delays["8 failures"], delays["8 losses of everything"]),
        ),
        Goal(
            "convergence.staleness_violations",
            "<=",
            0,
            sum(row["violations"] for row in on_spark),
        ),
    ]
    return {
        "experiment": "convergence",
        "environment": environment(seed, load),
        "results": results,
        "spark": on_spark,
        "plots": files,
        "goals": [goal.plain() for goal in goals],
    }


def _row(name: str, base: Run, one: Run, trace: Trace) -> dict[str, Any]:
    """A run beside the one without failures: how much later it is as good."""
    # What the base has reached half way for good. So a delay of up to 100 % can be seen, and a run
    # that never gets there is told as such, with all that was seen of its delay.
    half, end = len(trace.iterations) // 2, len(trace.iterations)
    target = float(base.smoothed[half:].max())
    loss = float(max(base.test_loss[half:]))
    reached, reached_base = one.iterations_to(target), base.iterations_to(target)
    loss_at, loss_at_base = one.iterations_to_loss(loss), base.iterations_to_loss(loss)
    return {
        "contender": name,
        "workload": {"trace": trace.name, "iterations": len(trace.iterations)},
        "repeats": 1,
        "median_ms": round(1_000 * one.seconds / len(trace.iterations), 2),
        "spread_ms": [round(1_000 * one.seconds / len(trace.iterations), 2)] * 2,
        "answer_checked": True,
        "iterations": reached,
        "reached": reached <= end and loss_at <= end,
        "delay_percent": round(100 * (reached - reached_base) / reached_base, 2),
        "delay_of_loss_percent": round(100 * (loss_at - loss_at_base) / loss_at_base, 2),
        "final_l1_change": float(one.smoothed[-1]),
        "final_test_loss": round(one.test_loss[-1], 5),
        "most_staleness": max(one.staleness),
        "backups": one.backups,
    }


def _staleness_on_spark(quick: bool, seed: int) -> list[dict[str, Any]]:
    """What staleness slots saw on Spark under each model, and how often it was too much."""
    session = open_session(f"local[{algorithm_streams.SLOTS},4]")
    workload = algorithm_streams.logistic_regression(20_000, 8 if quick else 20, seed)
    rows = []
    with scratch() as directory:
        workload.write(directory)
        for model in (tether.BSP(), tether.SSP(2), tether.ASP()):
            say(f"convergence: {model.name} on Spark")
            measured = workload.measure(
                session,
                directory,
                tether.Approximate(BUDGET),
                consistency=model,
                keep_answers=True,
            )
            seen = [row["staleness"] for row in measured.detail["answers"]]
            rows.append(
                {
                    "contender": f"{model.name}({model.staleness})",
                    "allowed": model.staleness,
                    "seen": seen,
                    "violations": sum(lag > model.staleness for lag in seen),
                    "median_ms": round(statistics.median(measured.epoch_ms), 1),
                    "answer_checked": measured.answer_checked,
                }
            )
    return rows
