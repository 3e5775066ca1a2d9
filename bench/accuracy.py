"""Speed and accuracy of the algorithms: AF-Stream 2019, experiments 3 to 5, in shape.

Accuracy: after none and after ten losses of all slots' memory, at two settings of Θ, in the paper's
proportions to what is measured. Rows are never lost, whatever L is: Spark reads an epoch's rows again
until it is committed. Throughput: on Spark, against the same query without fault tolerance.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import tether
from bench import algorithm_streams
from bench.accuracy_cases import CASES
from bench.harness import Experiment, Goal, say
from bench.streams import scratch
from tether.cli.session import open_session

if TYPE_CHECKING:
    from bench.accuracy_cases import Case
    from bench.algorithm_streams import Workload

FAILURES = 10
SETTINGS = ("first", "second")


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    accuracy = [row for make in CASES for row in _accuracy(make, quick, seed)]
    # As many rows as an epoch of a second at the asked speed has; three rounds, for in the first
    # Java is still compiling.
    rows, epochs, repeats = 1_000_000, 5 if quick else 8, 3
    workloads = [
        algorithm_streams.heavy_hitters(rows, epochs, seed),
        algorithm_streams.logistic_regression(rows // 2, epochs, seed),
        algorithm_streams.online_join(rows // 2, epochs, seed),
    ]
    experiments = {each.name: _throughput(each, seed, repeats) for each in workloads}
    by_name = {(row["contender"], row["failures"]): row for row in accuracy}

    def change(case: str) -> float:
        name = f"{case}: first setting"
        before, after = by_name[name, 0]["value"], by_name[name, FAILURES]["value"]
        return float(abs(after) - abs(before)) * (-1 if case != "online join" else 1)

    hitters = [row for row in accuracy if row["contender"].startswith("heavy hitters")]
    goals = [
        Goal("accuracy.hh_recall", ">=", 1.0, min(row["recall"] for row in hitters)),
        Goal("accuracy.hh_precision_drop", "<=", 6.1, change("heavy hitters")),
        Goal("accuracy.join_error_rise", "<=", 2.2, change("online join")),
        Goal("accuracy.lr_rate_drop", "<=", 3.9, change("logistic regression")),
        Goal("accuracy.hh_items_per_second", ">=", 1e6, _rate(experiments, "heavy hitters")),
        Goal("accuracy.lr_items_per_second", ">=", 2e5, _rate(experiments, "logistic regression")),
    ]
    report = experiments["heavy hitters"].report(goals, {})
    report["results"] = [
        row for name, one in experiments.items() for row in _rows(name, one, epochs)
    ]
    return {**report, "accuracy": accuracy}


def _rows(name: str, experiment: Experiment, epochs: int) -> list[dict[str, Any]]:
    """An algorithm's contenders, each with its throughput against no fault tolerance."""
    workload = {"slots": algorithm_streams.SLOTS, "epochs": epochs}
    results: list[dict[str, Any]] = experiment.report([], workload)["results"]
    base = f"{name}: no tolerance"
    for row in results:
        row["throughput_ratio"] = round(1 / experiment.ratio(row["contender"], base), 3)
    return results


def _accuracy(make: Any, quick: bool, seed: int) -> list[dict[str, Any]]:
    """One row for each setting and number of failures, averaged over seeds."""
    seeds = range(seed, seed + (2 if quick else 5))
    cases: list[Case] = [make(quick, one) for one in seeds]
    rows = []
    for number, setting in enumerate(SETTINGS):
        for failures in (0, FAILURES):
            runs = [
                case.after(failures, tether.Approximate(case.budgets[number])) for case in cases
            ]
            paper = cases[0].paper
            rows.append(
                {
                    "contender": f"{cases[0].name}: {setting} setting",
                    "unit": cases[0].unit,
                    "max_state_error": [round(case.budgets[number], 3) for case in cases],
                    "failures": failures,
                    "seeds": list(seeds),
                    **{
                        name: round(statistics.fmean(run[name] for run in runs), 4)
                        for name in runs[0]
                    },
                    "values": [round(run["value"], 4) for run in runs],
                    "paper": paper[setting] if failures else paper["none"],
                }
            )
            last = rows[-1]
            say(
                f"accuracy: {last['contender']}, {failures} failures: {last['value']} "
                f"(paper: {last['paper']})"
            )
    return rows


def _throughput(workload: Workload, seed: int, repeats: int) -> Experiment:
    experiment = Experiment("accuracy", seed=seed, repeats=repeats)
    session = open_session(f"local[{algorithm_streams.SLOTS},4]", memory="4g")
    with scratch() as directory:
        workload.write(directory)
        policies = {"no tolerance": tether.NoTolerance()} | {
            f"{name} setting": tether.Approximate(workload.budgets[number])
            for number, name in enumerate(SETTINGS)
        }
        experiment.measure(
            {
                f"{workload.name}: {name}": _runner(session, workload, directory, policy)
                for name, policy in policies.items()
            }
        )
    return experiment


def _runner(session: Any, workload: Workload, directory: Any, policy: Any) -> Any:
    return lambda: workload.measure(session, directory, policy)


def _rate(experiments: dict[str, Experiment], algorithm: str) -> float:
    runs = experiments[algorithm].runs[f"{algorithm}: first setting"]
    return statistics.median(run.detail["items_per_second"] for run in runs)
