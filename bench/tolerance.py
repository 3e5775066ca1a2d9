"""What each policy keeps of the speed without any: AF-Stream 2019, Tables 4 and 5, in shape.

The time of a run is that of all its epochs after the warm-up, not of the median one: a policy that
works only now and then pays then.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tether
from bench.algorithm_streams import (
    SLOTS,
    WARM_UP,
    Workload,
    heavy_hitters,
    logistic_regression,
    online_join,
)
from bench.harness import Experiment, Goal, Measurement
from bench.streams import scratch
from tether.algorithms.grep import Grep, MergedLines
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.cli.session import open_session
from tether.data import zipf_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NONE = "none"
EXACT = {
    "minibatch": tether.MiniBatch(),
    "upstream": tether.UpstreamBackup(),
    "barrier_async": tether.Barrier(1, by="seconds"),
    "barrier_sync": tether.Barrier(1, by="seconds", mode="sync"),
}


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]", memory="6g")
    rows, epochs = (100_000, WARM_UP + 6) if quick else (300_000, WARM_UP + 20)
    workloads = [
        grep(rows // 4, epochs, seed),
        word_count(rows // 4, epochs, seed),
        heavy_hitters(rows, epochs, seed),
        online_join(rows, epochs, seed),
        logistic_regression(rows, epochs, seed),
    ]
    experiment = Experiment("tolerance", seed=seed, repeats=1 if quick else 3)
    with scratch() as directory:
        contenders = {}
        for workload in workloads:
            source = directory / workload.name.replace(" ", "-")
            workload.write(source)
            policies = {NONE: tether.NoTolerance(), **EXACT}
            policies["approximate"] = tether.Approximate(workload.budgets[0])
            for name, policy in policies.items():
                contenders[f"{workload.name}: {name}"] = partial(
                    _measure, session, workload, source, policy
                )
        experiment.measure(contenders)
    goals = [Goal("tolerance.approximate_worst", ">=", 0.95, _worst(experiment, "approximate"))]
    goals += [Goal(f"tolerance.{name}_worst", ">=", 0, _worst(experiment, name)) for name in EXACT]
    wrong = sum(
        not measured.detail["right"] for runs in experiment.runs.values() for measured in runs
    )
    goals.append(Goal("tolerance.wrong_answers", "<=", 0, wrong))
    return experiment.report(goals, {"rows": rows, "epochs": epochs - WARM_UP})


def _worst(experiment: Experiment, policy: str) -> float:
    """The least part of the speed without tolerance that a policy keeps, over all workloads."""
    names = [name.partition(":")[0] for name in experiment.runs if name.endswith(f": {policy}")]
    return min(experiment.ratio(f"{name}: {NONE}", f"{name}: {policy}") for name in names)


def _measure(session: SparkSession, workload: Workload, source: Path, policy: Any) -> Measurement:
    finished = workload.run(session, source, policy)
    mean, totals = sum(finished.times) / len(finished.times), finished.query.totals()
    detail = {
        "right": finished.right,
        "durable_bytes": totals["backup_bytes"] + totals["item_bytes"],
        "backups": totals["backups"],
        "items_per_second": round(workload.rows / (mean / 1_000)),
    }
    # A wrong answer is counted and told, not hidden by an error that ends the experiment.
    return Measurement([mean], answer_checked=True, detail=detail)


def grep(rows: int, epochs: int, seed: int) -> Workload:
    tables = list(zipf_text(epochs, rows, words=20_000, seed=seed))
    last = Counter(line for line in tables[-1]["value"].to_pylist() if "bade" in line)

    def query(stream: Any) -> Any:
        lines = stream.apply(Grep("bade"), parallelism=SLOTS)
        return lines.apply(MergedLines(), parallelism=1)

    def check(answer: list[dict[str, Any]]) -> bool:
        return Counter(row["value"] for row in answer) == last

    return Workload("grep", tables, "value string", query, check, (10.0, 1.0))


def word_count(rows: int, epochs: int, seed: int) -> Workload:
    tables = list(zipf_text(epochs, rows, words=20_000, seed=seed))
    every = Counter(
        word for line in pa.concat_tables(tables)["value"].to_pylist() for word in line.split()
    )
    last = {word for line in tables[-1]["value"].to_pylist() for word in line.split()}

    def query(stream: Any) -> Any:
        parts = stream.apply(PartialCounts(), parallelism=SLOTS)
        return parts.apply(MergedCounts(), key="word", parallelism=SLOTS)

    def check(answer: list[dict[str, Any]]) -> bool:
        return {row["word"]: row["count"] for row in answer} == {w: every[w] for w in last}

    # A count of a word may be wrong by 1 % of the mean count.
    budget = 0.01 * sum(every.values()) / len(every)
    return Workload("word count", tables, "value string", query, check, (budget, budget / 10))
