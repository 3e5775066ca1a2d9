"""The first door: Tether's operators on Spark, with a bound, and without tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tether
from bench.contenders.durable import request_count
from bench.contenders.slow_files import CountsOfWords, Sums
from bench.contenders.spark_stores import outputs, spark_digest
from bench.inputs import MEAN_VALUE, columns_of
from bench.streams import epoch_times
from tether.algorithms.word_count import words

if TYPE_CHECKING:
    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.scenario import Scenario
    from tether.operator import Operator


def budget_of(scenario: Scenario) -> float:
    """Θ, from the scenario's number of epochs' drift.

    The sum's divergence is ``l1``: an epoch drifts by all values it adds. That of word count is
    ``max``: an epoch drifts by the count of its most frequent word, about a tenth of the words.
    """
    if scenario.algorithm == "word-count":
        return scenario.budget * scenario.rows
    return scenario.budget * scenario.rows * scenario.columns * MEAN_VALUE


def operators(course: Course, policy: Any) -> Measurement:
    """A keyed aggregate as an operator under a policy."""
    scenario = course.scenario
    with course.durable() as directory:
        before = request_count(course)
        operator: Operator
        if scenario.algorithm == "word-count":
            source, operator, key = words(course.stream()), CountsOfWords(), "word"
        else:
            sums = {f"total_{name}": name for name in columns_of(scenario)}
            source, operator, key = course.stream(), Sums(sums, count=None), "k"
        query = (
            tether.stream(source)
            .apply(operator, key=key, parallelism=scenario.slots)
            .start(
                tolerance=policy,
                backup=f"{directory}/backup",
                checkpoint=f"{directory}/checkpoint",
                fold_at_source=True,
            )
        )
        query.processAllAvailable()
        # Before the end, which makes everything durable once more.
        requests, counted = request_count(course) - before, query.totals()
        names = zip(outputs(scenario), query.table("totals").columns[1:], strict=False)
        shown = [f"`{found}` AS {name}" for name, found in names]
        answer = spark_digest(scenario, query.table("totals").selectExpr(f"{key} AS k", *shown))
        query.stop()
        detail = {
            "backups": counted["backups"],
            "durable_bytes": counted["backup_bytes"],
            "requests_per_epoch": round(requests / scenario.total_epochs, 1),
            "slot_seconds": query.slots()[0]["seconds"],
        }
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    return course.measurement(epoch_times(progress, scenario.uncounted), answer, detail)


def approximate(course: Course) -> Measurement:
    """With the scenario's bound."""
    return operators(course, tether.Approximate(max_state_error=budget_of(course.scenario)))


def no_tolerance(course: Course) -> Measurement:
    """Without any backup."""
    return operators(course, tether.NoTolerance())
