"""Runs whose every epoch gives its answer as rows: Tether's operators, and Spark's ``foreachBatch``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import tether
from bench.contenders.durable import durable_bytes
from bench.contenders.spark_stores import close_stores, measured_times
from bench.streams import run_through
from tether.sql import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from bench.contenders.course import Course

Rows = list[dict[str, Any]]


class Answered(NamedTuple):
    """A run that is over."""

    times: list[float]
    """Milliseconds of each measured epoch."""
    answers: dict[int, Rows]
    """Rows that each epoch gave."""
    detail: dict[str, Any]

    @property
    def last(self) -> Rows:
        """Rows of the newest epoch."""
        return self.answers[max(self.answers)]


def tether_answers(course: Course, graph: Callable[[Any], Any], budget: float) -> Answered:
    """Tether's operators over a course, with a bound.

    Args:
        course: What to run over.
        graph: From the stream to the last operator.
        budget: Θ.
    """
    answers: dict[int, Rows] = {}

    def sink(rows: DataFrame, epoch: int) -> None:
        answers[epoch] = [row.asDict() for row in rows.collect()]

    with course.durable() as directory:
        query = graph(tether.stream(course.stream())).start(
            sink,
            tolerance=tether.Approximate(max_state_error=budget),
            backup=f"{directory}/backup",
            checkpoint=f"{directory}/checkpoint",
        )
        query.processAllAvailable()
        counted = query.totals()  # before the end, which makes everything durable once more
        query.stop()
        # Where the last epoch's time went: what is not in a slot is Spark's reading and shuffling.
        seconds = {
            f"{slot['operator']} {slot['slot']}": {
                phase: round(taken, 4) for phase, taken in slot["seconds"].items()
            }
            for slot in query.slots()
        }
    detail = {
        "backups": counted["backups"],
        "durable_bytes": counted["backup_bytes"],
        "slot_seconds": seconds,
    }
    return Answered(measured_times(course, query), answers, detail)


def spark_answers(
    course: Course,
    query: DataFrame,
    answer: Callable[[DataFrame], DataFrame],
    *,
    mode: str = "append",
) -> Answered:
    """A streaming query of plain Spark; what is asked is computed of each epoch's output.

    Args:
        course: What to run over.
        query: The query.
        answer: From an epoch's output to the few rows that answer.
        mode: The query's output mode.
    """
    answers: dict[int, Rows] = {}

    def epoch(output: DataFrame, number: int) -> None:
        answers[number] = [row.asDict() for row in answer(output).collect()]

    with course.durable() as directory:
        running = run_through(query.writeStream.outputMode(mode).foreachBatch(epoch), directory)
        detail = {"durable_bytes": durable_bytes(directory, "state")}
        close_stores(course.spark)  # their directory goes
    return Answered(measured_times(course, running), answers, detail)


@contextmanager
def on_store(course: Course, settings: Mapping[str, str] | None) -> Iterator[None]:
    """Stateful queries on one of Spark's stores; None: on Tether's, with the scenario's bound."""
    if settings is None:
        with bounded(course.spark, max_state_error=course.scenario.changed_rows):
            yield
        return
    with course.settings(settings):
        yield
