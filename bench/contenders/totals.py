"""Who computes totals by key: the keyed sum and word count.

A contender that makes a Python call for each row or key runs over the course's smaller part and is
compared per row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.contenders import (
    one_process,
    other_systems,
    spark_python,
    spark_stores,
    tether_operators,
)
from bench.contenders.contender import Contender
from bench.contenders.flink_sql import FlinkSql, table_contenders
from bench.contenders.flink_sql import run as run_flink
from bench.inputs import Digest, columns_of, digest_sql

if TYPE_CHECKING:
    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.scenario import Scenario


def _bounded(course: Course) -> Measurement:
    return spark_stores.bounded_store(course, changed_rows=course.scenario.changed_rows)


def flink_totals(scenario: Scenario) -> FlinkSql:
    """Totals by key as one Flink SQL statement."""
    if scenario.algorithm == "word-count":
        split = "SELECT word AS k FROM input CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w (word)"
        return FlinkSql(
            input="line STRING",
            output="k STRING, n BIGINT",
            query=f"SELECT k, COUNT(*) AS n FROM ({split}) GROUP BY k",
            answer=digest_sql(scenario, "k", ["n"]),
            reading="SELECT line, 1 FROM input",
        )
    names = columns_of(scenario)
    columns = ", ".join(f"{name} BIGINT" for name in ["k", *names])
    sums = ", ".join(f"SUM({name}) AS {name}" for name in names)
    return FlinkSql(
        input=columns,
        output=columns,
        query=f"SELECT k, {sums} FROM input GROUP BY k",
        answer=digest_sql(scenario, "k", names),
        reading="SELECT * FROM input",
        columns=names,
    )


def _digest(row: list[Any]) -> Digest:
    return Digest(*map(int, row))


TOTALS: dict[str, Contender] = {
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
    "spark-rocksdb-overlapped": Contender(
        "Spark RocksDB + changelog, our checkpoint files",
        "spark",
        partial(spark_stores.store, settings=spark_stores.ROCKSDB, overlapped=True),
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
    **table_contenders(flink_totals, _digest, ("table", "datastream")),
    "flink-reading": Contender(
        "PyFlink, reading the CSV only",
        "limit",
        partial(
            run_flink,
            statement=flink_totals,
            to_answer=_digest,
            api="reading",
            state="hashmap",
            checkpoints=False,
        ),
    ),
    "bytewax": Contender("Bytewax, recovery on", "peer", other_systems.bytewax, small=True),
}
