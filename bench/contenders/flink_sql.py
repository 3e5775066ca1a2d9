"""PyFlink as a contender: one SQL statement over the files, in all settings of its state."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.contenders.contender import Contender
from bench.contenders.other_systems import flink

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.scenario import Scenario

APIS = {"table": "Table API", "datastream": "DataStream"}
BACKENDS = {"hashmap": "HashMap", "rocksdb": "RocksDB"}


@dataclass(frozen=True)
class FlinkSql:
    """What a Flink job computes.

    Args:
        input: Columns of the table ``input``, as Flink declares them.
        output: Columns of the table that takes the result.
        query: What is timed.
        answer: Expressions over the query's rows that give the answer as one row of numbers.
        reading: A query of the output's shape that only reads the input.
        columns: Value columns, for the DataStream job.
    """

    input: str
    output: str
    query: str
    answer: list[str]
    reading: str = ""
    columns: list[str] = field(default_factory=list)


def run(
    course: Course,
    statement: Callable[[Scenario], FlinkSql],
    to_answer: Callable[[list[Any]], Any],
    **settings: Any,
) -> Measurement:
    """One run with a setting; see ``other_systems.flink``."""
    return flink(course, asdict(statement(course.scenario)), to_answer, **settings)


def table_contenders(
    statement: Callable[[Scenario], FlinkSql],
    to_answer: Callable[[list[Any]], Any],
    apis: tuple[str, ...] = ("table",),
) -> dict[str, Contender]:
    """A statement with state on the heap and in RocksDB, with checkpoints and without."""
    return {
        f"flink-{api}-{state}{ending}": Contender(
            f"PyFlink {APIS[api]}, {backend}{title}",
            "peer" if checkpoints else "limit",
            partial(
                run,
                statement=statement,
                to_answer=to_answer,
                api=api,
                state=state,
                checkpoints=checkpoints,
            ),
            small=api == "datastream",
        )
        for api in apis
        for state, backend in BACKENDS.items()
        for checkpoints, ending, title in (
            (False, "-unchecked", ", no checkpoints"),
            (True, "", ", checkpoints"),
        )
    }
