"""Top-k of a sliding window: Tether's three stages, plain Spark SQL, Spark's sketch, one process."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from bench.contenders.contender import Contender
from bench.contenders.epoch_answers import on_store, spark_answers, tether_answers
from bench.contenders.one_process import duckdb_timed, module, whole
from bench.contenders.spark_stores import DEFAULT, ROCKSDB
from bench.questions.top_k import PANE, Tops, Window, largest
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from bench.contenders.course import Course
    from bench.contenders.epoch_answers import Rows
    from bench.harness import Measurement
    from bench.questions.top_k import Ranking

TRACKED = 10_000
"""Items that a sketch of Spark keeps: its own default."""
SKETCH_ERROR = 3.5 / 16_384
"""What such a sketch promises: 3.5 over its table's size, which is the power of 2 that holds them."""


def operators(course: Course) -> Measurement:
    """Counts of slices, of the window, and a merged list."""
    scenario = course.scenario

    def graph(stream: Any) -> Any:
        slices = SliceCounts("item", time="time", pane=PANE)
        counts = stream.apply(slices, parallelism=scenario.slots)
        kept = WindowCounts(k=scenario.k, panes=scenario.panes)
        window = counts.apply(kept, key="item", parallelism=scenario.slots)
        return window.apply(TopK(scenario.k), parallelism=1, feedback_to=window)

    # An epoch's drift: its rows come into the window, and as many leave it.
    done = tether_answers(course, graph, scenario.budget * 2 * scenario.rows)
    windows = {epoch: _ranking(rows) for epoch, rows in done.answers.items()}
    return course.measurement(done.times, Tops(windows), done.detail)


def _ranking(rows: Rows) -> Ranking:
    return sorted(((row["item"], row["n"]) for row in rows), key=lambda row: (-row[1], row[0]))


def _timed(course: Course) -> DataFrame:
    timed = course.stream().withColumn("at", F.timestamp_seconds("time"))
    return timed.withWatermark("at", "0 seconds")  # rows come in order


def _sliding(course: Course) -> Column:
    length = PANE * course.scenario.panes
    return F.window("at", f"{length} seconds", f"{PANE} seconds").alias("window")


PANE_OF_WINDOW = f"unix_seconds(window.end) div {PANE} - 1 AS pane"


def plain_sql(course: Course, settings: dict[str, str] | None) -> Measurement:
    """What a Spark user would write: counts in a sliding window, ranked when the watermark closes it."""

    def first(closed: DataFrame) -> DataFrame:
        ranked = Over.partitionBy("window").orderBy(F.col("count").desc(), "item")
        places = closed.withColumn("rank", F.row_number().over(ranked))
        best = places.filter(F.col("rank") <= course.scenario.k)
        return best.selectExpr(PANE_OF_WINDOW, "item", "count AS n")

    with on_store(course, settings):
        counts = _timed(course).groupBy(_sliding(course), "item").count()
        done = spark_answers(course, counts, first)
    windows: dict[int, Rows] = {}
    for row in (row for rows in done.answers.values() for row in rows):
        windows.setdefault(row["pane"], []).append(row)
    tops = Tops({pane: _ranking(rows) for pane, rows in windows.items()})
    return course.measurement(done.times, tops, done.detail)


def sketch(course: Course) -> Measurement:
    """Spark's own ``approx_top_k``: a sketch for each window is all the state there is."""
    with on_store(course, ROCKSDB):
        windows_of = _timed(course).groupBy(_sliding(course))
        top = F.expr(f"approx_top_k(item, {course.scenario.k}, {TRACKED})").alias("top")

        def shown(closed: DataFrame) -> DataFrame:
            return closed.selectExpr(PANE_OF_WINDOW, "top")

        done = spark_answers(course, windows_of.agg(top), shown)
    windows = {
        row["pane"]: _ranking([{"item": one["item"], "n": one["count"]} for one in row["top"]])
        for rows in done.answers.values()
        for row in rows
    }
    return course.measurement(done.times, Tops(windows, SKETCH_ERROR), done.detail)


def numpy_epochs(course: Course) -> Measurement:
    """File after file, counts of all items in memory; an answer each epoch."""
    scenario = course.scenario
    window, windows, times = Window(scenario.keys, scenario.panes), {}, []
    for epoch, path in enumerate(course.written().files):
        begin = time.perf_counter()
        window.slide(np.asarray(pq.read_table(path, columns=["item"])["item"]))
        windows[epoch] = largest(window.counts, scenario.k)
        times.append(1_000 * (time.perf_counter() - begin))
    return course.measurement(times[scenario.uncounted :], Tops(windows))


def polars_epochs(course: Course) -> Measurement:
    """File after file, the last panes' counts in memory as Polars frames; an answer each epoch."""
    polars, scenario = module("polars"), course.scenario
    panes: list[Any] = []
    windows, times = {}, []
    for epoch, path in enumerate(course.written().files):
        begin = time.perf_counter()
        rows = polars.scan_parquet(path).group_by("item")
        panes = [*panes, rows.agg(polars.len().cast(polars.Int64).alias("n")).collect()]
        panes = panes[-scenario.panes :]
        counts = polars.concat(panes).lazy().group_by("item").agg(polars.col("n").sum())
        order = counts.sort("n", "item", descending=[True, False]).head(scenario.k)
        windows[epoch] = list(order.collect().select("item", "n").iter_rows())
        times.append(1_000 * (time.perf_counter() - begin))
    return course.measurement(times[scenario.uncounted :], Tops(windows))


def duckdb_batch(course: Course) -> Measurement:
    """DuckDB over all files at once: counts of panes, each added to the windows that hold it."""
    scenario = course.scenario
    source = f"read_parquet('{course.written().source}/*.parquet')"
    query = f"""
        WITH counted AS (
            SELECT item, time // {PANE} AS pane, COUNT(*) AS n FROM {source} GROUP BY ALL
        ), windows AS (
            SELECT item, pane + unnest(range({scenario.panes})) AS pane, n FROM counted
        ), summed AS (
            SELECT pane, item, SUM(n)::BIGINT AS n FROM windows
            WHERE pane < {scenario.total_epochs} GROUP BY ALL
        )
        SELECT pane, item, n FROM summed
        QUALIFY row_number() OVER (PARTITION BY pane ORDER BY n DESC, item) <= {scenario.k}
    """
    seconds, rows = duckdb_timed(course, query)
    windows: dict[int, Rows] = {}
    for pane, item, n in rows:
        windows.setdefault(pane, []).append({"item": item, "n": n})
    tops = Tops({pane: _ranking(found) for pane, found in windows.items()})
    return whole(course, seconds, tops)


TOP_K: dict[str, Contender] = {
    "tether-operators": Contender("Tether operators", "tether", operators),
    "tether-store": Contender("Tether bounded store", "tether", partial(plain_sql, settings=None)),
    "spark-rocksdb": Contender(
        "Spark RocksDB + changelog", "spark", partial(plain_sql, settings=ROCKSDB)
    ),
    "spark-default": Contender(
        "Spark default store", "spark", partial(plain_sql, settings=DEFAULT)
    ),
    "spark-sketch": Contender("Spark approx_top_k (sketch), RocksDB", "spark", sketch),
    "numpy": Contender("numpy + Arrow, one process", "limit", numpy_epochs),
    "polars": Contender("Polars, one process", "limit", polars_epochs),
    "duckdb": Contender("DuckDB, one process", "limit", duckdb_batch),
}
