"""Heavy hitters: Tether's sketches, Spark's exact sums, and one process, on the same files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from bench.contenders.contender import Contender
from bench.contenders.durable import durable_bytes
from bench.contenders.epoch_answers import tether_answers
from bench.contenders.one_process import heavy_pairs
from bench.contenders.spark_stores import DEFAULT, ROCKSDB, close_stores, measured_times
from bench.streams import run_through
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.contenders.course import Course
    from bench.harness import Measurement


def _pairs(rows: Iterable[Any]) -> frozenset[tuple[int, int]]:
    return frozenset((row["src"], row["dst"]) for row in rows)


def sketches(course: Course) -> Measurement:
    """Local sketches, merged by a global one; Θ is the paper's hundredth of the threshold."""
    threshold, slots = course.truth.threshold, course.scenario.slots

    def graph(stream: Any) -> Any:
        local = LocalSketch(["src", "dst"], value="bytes", threshold=threshold)
        sketched = stream.apply(local, key=["src", "dst"], parallelism=slots)
        return sketched.apply(GlobalSketch(threshold=threshold), parallelism=1)

    done = tether_answers(course, graph, threshold / 100)
    return course.measurement(done.times, _pairs(done.last), done.detail)


def spark_sums(course: Course, settings: dict[str, str]) -> Measurement:
    """What a Spark user would write: exact sums of all pairs in a state store, filtered."""
    threshold = course.truth.threshold
    with course.settings(settings) as session, course.durable() as directory:
        sums = course.stream().groupBy("src", "dst").agg(F.sum("bytes").alias("total"))
        heavy = sums.filter(F.col("total") >= threshold)
        query = run_through(heavy.writeStream.outputMode("update").format("noop"), directory)
        detail = {"durable_bytes": durable_bytes(directory, "state")}
        close_stores(session)
        state = session.read.format("statestore").load(directory)
        found = state.filter(F.col("value.sum") >= threshold).select("key.src", "key.dst")
        answer = _pairs(found.collect())
    return course.measurement(measured_times(course, query), answer, detail)


def one_process(course: Course) -> Measurement:
    """Exact sums of all pairs with Arrow and numpy, an answer each epoch."""
    threshold = course.truth.threshold
    times, pairs = heavy_pairs(course.source, threshold, course.scenario.uncounted)
    return course.measurement(times, frozenset(pairs))


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
