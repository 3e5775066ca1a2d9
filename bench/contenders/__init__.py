"""All contenders by id: what they are called in reports, and how one is run over a course.

An id is what scenario files name. A contender that makes a Python call for each row or key runs over
the course's smaller part and is compared per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from bench.contenders import (
    one_process,
    other_systems,
    spark_python,
    spark_stores,
    tether_operators,
)
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.course import Course
    from bench.harness import Measurement

Kind = Literal["tether", "spark", "peer", "limit"]


@dataclass(frozen=True)
class Contender:
    """One system with one setting.

    Args:
        label: Its name in reports.
        kind: ``limit`` keeps no durable state: what the others try to be close to.
        run: One run over a course.
        small: Whether it gets the smaller course.
    """

    label: str
    kind: Kind
    run: Callable[[Course], Measurement]
    small: bool = False

    def __call__(self, course: Course) -> Measurement:
        """Run once."""
        return self.run(course.small if self.small else course)


def _bounded(course: Course) -> Measurement:
    return spark_stores.bounded_store(course, changed_rows=course.scenario.changed_rows)


CONTENDERS: dict[str, Contender] = {
    "spark-stateless": Contender("Spark, no state", "limit", spark_stores.no_state),
    "tether-operators": Contender("Tether operators", "tether", tether_operators.approximate),
    "tether-no-tolerance": Contender(
        "Tether operators, no tolerance", "limit", tether_operators.no_tolerance
    ),
    "tether-store": Contender("Tether bounded store", "tether", _bounded),
    "tether-store-exact": Contender(
        "Tether store, exact", "tether", partial(spark_stores.bounded_store, changed_rows=0)
    ),
    "spark-default": Contender(
        "Spark default store", "spark", partial(spark_stores.store, settings=spark_stores.DEFAULT)
    ),
    "spark-rocksdb": Contender(
        "Spark RocksDB + changelog",
        "spark",
        partial(spark_stores.store, settings=spark_stores.ROCKSDB),
    ),
    "spark-rocksdb-v2": Contender(
        "Spark RocksDB + changelog, format 2",
        "spark",
        partial(spark_stores.store, settings=spark_stores.ROCKSDB_V2),
    ),
    "spark-pandas-state": Contender(
        "Spark applyInPandasWithState", "spark", spark_python.apply_in_pandas, small=True
    ),
    "spark-transform-state": Contender(
        "Spark transformWithState (Python)", "spark", spark_python.transform_with_state, small=True
    ),
    "numpy": Contender("numpy + Arrow, one process", "limit", one_process.numpy_epochs),
    "polars": Contender("Polars, one process", "limit", one_process.polars_batch),
    "duckdb": Contender("DuckDB, one process", "limit", one_process.duckdb_batch),
    **{
        f"flink-{api}-{state}{ending}": Contender(
            f"PyFlink {name}, {backend}{title}",
            "peer" if checkpoints else "limit",
            partial(other_systems.flink, api=api, state=state, checkpoints=checkpoints),
            small=api == "datastream",
        )
        for api, name in (("table", "Table API"), ("datastream", "DataStream"))
        for state, backend in (("hashmap", "HashMap"), ("rocksdb", "RocksDB"))
        for checkpoints, ending, title in (
            (False, "-unchecked", ", no checkpoints"),
            (True, "", ", checkpoints"),
        )
    },
    "flink-reading": Contender(
        "PyFlink, reading the CSV only",
        "limit",
        partial(other_systems.flink, api="reading", state="hashmap", checkpoints=False),
    ),
    "bytewax": Contender("Bytewax, recovery on", "peer", other_systems.bytewax, small=True),
}


def find(contender: str) -> Contender:
    """The contender of an id.

    Raises:
        BadValueError: There is none.
    """
    if contender not in CONTENDERS:
        raise BadValueError(
            f"There is no contender {contender!r}.",
            why=f"Known are: {', '.join(CONTENDERS)}.",
            do="Correct the scenario file.",
        )
    return CONTENDERS[contender]
