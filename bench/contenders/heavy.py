"""Heavy hitters: Tether's sketches on Spark, and the exact answer in one process on the same files."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import tether
from bench import algorithm_streams
from bench.contenders.one_process import heavy_pairs
from bench.harness import Measurement

if TYPE_CHECKING:
    from bench.algorithm_streams import Workload
    from bench.contenders.course import Course


@cache
def _workload(rows: int, epochs: int, seed: int) -> Workload:
    return algorithm_streams.heavy_hitters(rows, epochs, seed)


def _prepared(course: Course) -> Workload:
    scenario = course.scenario
    epochs = algorithm_streams.WARM_UP + scenario.epochs
    workload = _workload(scenario.rows, epochs, scenario.seed)
    if not course.source.is_dir():
        workload.write(course.source)
    return workload


def sketches(course: Course) -> Measurement:
    """Local sketches, merged by a global one, with the bound of the tolerance experiment."""
    workload = _prepared(course)
    policy = tether.Approximate(max_state_error=workload.budgets[0])
    found = workload.measure(course.spark, course.source, policy)
    return Measurement(found.epoch_ms, found.answer_checked, found.detail, rows=workload.rows)


def one_process(course: Course) -> Measurement:
    """Exact sums of all pairs with Arrow and numpy, an answer each epoch."""
    workload = _prepared(course)
    # The workload's first budget is a hundredth of its threshold.
    threshold = 100 * workload.budgets[0]
    times, pairs = heavy_pairs(course.source, threshold, algorithm_streams.WARM_UP)
    answer = [{"src": source, "dst": target} for source, target in pairs]
    detail = {"heavy": len(pairs)}
    return Measurement(times, workload.check(answer), detail, rows=workload.rows)


HEAVY = {"tether-operators": sketches, "numpy": one_process}
HEAVY_LABELS = {
    "tether-operators": "Tether operators (sketches)",
    "numpy": "numpy + Arrow, one process (exact)",
}
