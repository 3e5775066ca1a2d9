"""Heavy hitters: Tether's sketches, Spark's exact sums, and one process, on the same files."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import tether
from bench import algorithm_streams
from bench.contenders import Contender
from bench.contenders.one_process import heavy_pairs
from bench.contenders.spark_stores import DEFAULT, ROCKSDB, close_stores, finish
from bench.harness import Measurement
from bench.streams import epoch_times
from tether.testing.epochs import read_epochs

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


def spark_sums(course: Course, settings: dict[str, str]) -> Measurement:
    """What a Spark user would write: exact sums of all pairs in a state store, filtered."""
    workload = _prepared(course)
    with course.settings(settings) as session, course.durable() as directory:
        rows = read_epochs(session, course.source, workload.schema)
        sums = rows.groupBy("src", "dst").agg(F.sum("bytes").alias("total"))
        heavy = sums.filter(F.col("total") >= _threshold(workload))
        query = finish(heavy.writeStream.outputMode("update").format("noop"), directory)
        close_stores(session)
        state = session.read.format("statestore").load(directory)
        found = state.filter(F.col("value.sum") >= _threshold(workload)).select(
            "key.src", "key.dst"
        )
        answer = [row.asDict() for row in found.collect()]
    times = epoch_times(query.recentProgress, algorithm_streams.WARM_UP)
    detail = {"heavy": len(answer)}
    return Measurement(times, workload.check(answer), detail, rows=workload.rows)


def _threshold(workload: Workload) -> float:
    return 100 * workload.budgets[0]  # the first budget is a hundredth of the threshold


def one_process(course: Course) -> Measurement:
    """Exact sums of all pairs with Arrow and numpy, an answer each epoch."""
    workload = _prepared(course)
    times, pairs = heavy_pairs(course.source, _threshold(workload), algorithm_streams.WARM_UP)
    answer = [{"src": source, "dst": target} for source, target in pairs]
    detail = {"heavy": len(pairs)}
    return Measurement(times, workload.check(answer), detail, rows=workload.rows)


HEAVY: dict[str, Contender] = {
    "tether-operators": Contender("Tether operators (sketches)", "tether", sketches),
    "spark-rocksdb": Contender(
        "Spark RocksDB + changelog (exact sums)", "spark", partial(spark_sums, settings=ROCKSDB)
    ),
    "spark-default": Contender(
        "Spark default store (exact sums)", "spark", partial(spark_sums, settings=DEFAULT)
    ),
    "numpy": Contender("numpy + Arrow, one process (exact sums)", "limit", one_process),
}
