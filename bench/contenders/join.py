"""The join of two streams: Tether's online join, whole and sampled; Spark's, Flink's; one process."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from bench.contenders.contender import Contender
from bench.contenders.epoch_answers import on_store, spark_answers, tether_answers
from bench.contenders.flink_sql import FlinkSql, table_contenders
from bench.contenders.one_process import duckdb_timed, module, whole
from bench.contenders.spark_stores import DEFAULT, ROCKSDB
from bench.questions.join import Pairs
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.scenario import Scenario

CONFIDENCE = 0.9999
"""Of the sample's interval: a benchmark must not fail by chance."""


def operators(course: Course, rate: float) -> Measurement:
    """The ripple join, of all rows or of a sample; Θ is the paper's thousandth of the sampled rows."""
    scenario = course.scenario

    def graph(stream: Any) -> Any:
        sample = JoinSample(
            ["dst"], rate=rate, time="seconds", value="bytes", seed=1 + scenario.seed
        )
        return (
            stream.apply(sample, parallelism=scenario.slots)
            .apply(RippleJoin(rate=rate), key=["dst", "bucket"], parallelism=scenario.slots)
            .apply(JoinEstimate(rate=rate, confidence=CONFIDENCE), parallelism=1)
        )

    done = tether_answers(course, graph, rate * course.total_rows / 1_000)
    (row,) = done.last
    interval = None if rate == 1 else (row["count_low"], row["count_high"])
    return course.measurement(done.times, Pairs(row["count"], row["sum"], interval), done.detail)


def _side(course: Course, *, left: bool) -> DataFrame:
    rows = course.stream().filter(F.col("is_left") == left)
    # Rows of an epoch are in any order, but never older than the last epoch's.
    timed = rows.withColumn("at", F.timestamp_millis((F.col("seconds") * 1_000).cast("long")))
    return timed.withWatermark("at", "0 seconds").withColumn("second", F.window("at", "1 second"))


def plain_sql(course: Course, settings: dict[str, str] | None) -> Measurement:
    """What a Spark user would write: a stream-stream join whose state a watermark bounds, and totals."""
    with on_store(course, settings):
        left, right = _side(course, left=True), _side(course, left=False)
        joined = left.select("dst", "second", "bytes").join(
            right.select("dst", "second"), ["dst", "second"]
        )
        totals = joined.groupBy().agg(
            F.count("*").alias("count"), F.coalesce(F.sum("bytes"), F.lit(0)).alias("total")
        )
        done = spark_answers(course, totals, lambda rows: rows, mode="update")
    (row,) = done.last
    answer = Pairs(float(row["count"]), float(row["total"]))
    return course.measurement(done.times, answer, done.detail)


class Sides:
    """Rows of both sides by host and second, in numpy; finished seconds become two numbers."""

    def __init__(self) -> None:
        self._number = self._total = 0.0
        self._key: NDArray[np.int64] = np.zeros(0, np.int64)
        self._sums: NDArray[Any] = np.zeros((3, 0))

    def add(self, seconds: Any, hosts: Any, size: Any, is_left: Any) -> tuple[float, float]:
        """Add an epoch's rows; give COUNT and SUM so far."""
        second = np.floor(seconds).astype(np.int64)
        every = np.concatenate([self._key, (second << 32) | hosts])
        new = np.stack([is_left, np.where(is_left, size, 0), ~is_left]).astype(np.float64)
        key, place = np.unique(every, return_inverse=True)
        parts = np.concatenate([self._sums, new], axis=1)
        sums = np.stack([np.bincount(place, weights=part) for part in parts])
        done = key >> 32 < second.max()
        left, size_left, right = sums[:, done]
        self._number += left @ right
        self._total += size_left @ right
        self._key, self._sums = key[~done], sums[:, ~done]
        left, size_left, right = self._sums
        return float(self._number + left @ right), float(self._total + size_left @ right)


def numpy_epochs(course: Course) -> Measurement:
    """File after file; only the second that is not over is kept."""
    sides, times, answer = Sides(), [], (0.0, 0.0)
    for path in course.written().files:
        begin = time.perf_counter()
        rows = pq.read_table(path)
        names = ("seconds", "dst", "bytes", "is_left")
        answer = sides.add(*(np.asarray(rows[name]) for name in names))
        times.append(1_000 * (time.perf_counter() - begin))
    return course.measurement(times[course.scenario.uncounted :], Pairs(*answer))


def polars_batch(course: Course) -> Measurement:
    """Polars over all files at once: a hash join, then totals."""
    polars = module("polars")
    source = course.written().source
    begin = time.perf_counter()
    second = polars.col("seconds").floor().cast(polars.Int64).alias("second")
    rows = polars.scan_parquet(str(source / "*.parquet")).with_columns(second)
    left = rows.filter(polars.col("is_left")).select("dst", "second", "bytes")
    right = rows.filter(~polars.col("is_left")).select("dst", "second")
    joined = left.join(right, on=["dst", "second"])
    totals = joined.select(polars.len().alias("count"), polars.col("bytes").sum())
    count, total = totals.collect(engine="streaming").row(0)
    seconds = time.perf_counter() - begin
    return whole(course, seconds, Pairs(float(count), float(total)))


def duckdb_batch(course: Course) -> Measurement:
    """DuckDB over all files at once: a hash join, then totals."""
    rows = (
        "SELECT dst, floor(seconds)::BIGINT AS second, bytes, is_left "
        f"FROM read_parquet('{course.written().source}/*.parquet')"
    )
    query = (
        f"WITH packets AS ({rows}) SELECT COUNT(*) AS n, SUM(one.bytes) AS total "
        "FROM packets one JOIN packets other USING (dst, second) "
        "WHERE one.is_left AND NOT other.is_left"
    )
    seconds, ((count, total),) = duckdb_timed(course, query)
    return whole(course, seconds, Pairs(float(count), float(total)))


def flink_sql(scenario: Scenario) -> FlinkSql:
    """The same as one Flink SQL statement; nothing says when a second is over, so its state stays."""
    del scenario
    # All names are quoted: Flink reserves many a plain word.
    side = "SELECT `dst`, CAST(FLOOR(`at`) AS BIGINT) AS `bucket`, `amount` FROM input WHERE"
    return FlinkSql(
        input="`at` DOUBLE, `dst` BIGINT, `amount` BIGINT, `is_left` BOOLEAN",
        output="`pairs` BIGINT, `total` BIGINT",
        query="SELECT COUNT(*) AS `pairs`, SUM(l.`amount`) AS `total` "
        f"FROM ({side} `is_left`) l JOIN ({side} NOT `is_left`) r "
        "ON l.`dst` = r.`dst` AND l.`bucket` = r.`bucket`",
        answer=["`pairs`", "`total`"],
    )


JOIN: dict[str, Contender] = {
    "tether-operators": Contender(
        "Tether operators (all rows)", "tether", partial(operators, rate=1.0)
    ),
    "tether-sample": Contender(
        "Tether operators (a tenth of the rows)", "tether", partial(operators, rate=0.1)
    ),
    "tether-store": Contender("Tether bounded store", "tether", partial(plain_sql, settings=None)),
    "spark-rocksdb": Contender(
        "Spark RocksDB + changelog", "spark", partial(plain_sql, settings=ROCKSDB)
    ),
    "spark-default": Contender(
        "Spark default store", "spark", partial(plain_sql, settings=DEFAULT)
    ),
    **table_contenders(flink_sql, lambda row: Pairs(float(row[0]), float(row[1]))),
    "numpy": Contender("numpy + Arrow, one process", "limit", numpy_epochs),
    "polars": Contender("Polars, one process", "limit", polars_batch),
    "duckdb": Contender("DuckDB, one process", "limit", duckdb_batch),
}
