"""Plain stateful queries of every kind, and a way to run one over prepared batches."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from tests.sql.processors import Counting, Forgetting, Remembering

from tether.sql import bounded
from tether.sql.settings import PREFIX, PROVIDER_CLASS, Bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "t timestamp, k long, v long"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
Batches = list[list[tuple[int, int, int]]]


def write_batch(folder: Path, number: int, rows: list[tuple[int, int, int]]) -> None:
    """One file that a query reads as one micro-batch; times are seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(
        json.dumps({"t": f"2026-01-01T00:{t // 60:02}:{t % 60:02}", "k": k, "v": v}) + "\n"
        for t, k, v in rows
    )
    path = folder / f"{number:04}.json"
    partial = folder / f".{number:04}.partial"
    partial.write_text(text)
    os.utime(partial, (1_600_000_000 + number, 1_600_000_000 + number))  # the order of reading
    partial.rename(path)


def sums(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("k").agg(F.sum("v").alias("sum"), F.count("*").alias("n"))


def windows(events: DataFrame, _: DataFrame) -> DataFrame:
    window = F.window("t", "20 seconds", "10 seconds")
    return events.withWatermark("t", "15 seconds").groupBy(window, "k").agg(F.sum("v").alias("sum"))


def sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    session = F.session_window("t", "8 seconds")
    return (
        events.withWatermark("t", "15 seconds").groupBy(session, "k").agg(F.count("*").alias("n"))
    )


def distinct(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.withWatermark("t", "15 seconds").dropDuplicates(["k", "t"])


def _sides(events: DataFrame, others: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    left = events.withWatermark("t", "10 seconds").alias("a")
    right = others.withWatermark("t", "10 seconds").alias("b")
    near = F.expr("a.k = b.k AND b.t BETWEEN a.t - INTERVAL 5 SECONDS AND a.t + INTERVAL 5 SECONDS")
    return left, right, near


def inner_join(events: DataFrame, others: DataFrame) -> DataFrame:
    left, right, near = _sides(events, others)
    return left.join(right, near).select("a.t", "a.k", "a.v", F.col("b.v").alias("w"))


def outer_join(events: DataFrame, others: DataFrame) -> DataFrame:
    left, right, near = _sides(events, others)
    return left.join(right, near, "leftOuter").select("a.t", "a.k", "a.v", F.col("b.v").alias("w"))


def _count_group(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
    (total,) = state.get if state.exists else (0,)
    total += sum(int(frame.v.sum()) for frame in frames)
    if total % 7 == 0 and state.exists:
        state.remove()
    else:
        state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "total": [total]})


def grouped_map(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("k").applyInPandasWithState(
        _count_group, "k long, total long", "total long", "update", GroupStateTimeout.NoTimeout
    )


def processor(events: DataFrame, _: DataFrame) -> DataFrame:
    return (
        events.withWatermark("t", "5 seconds")
        .groupBy("k")
        .transformWithStateInPandas(
            Remembering(), "k long, what string, amount long", "update", "EventTime"
        )
    )


def expiring(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("k").transformWithStateInPandas(
        Forgetting(), "k long, total long, kept long, known long", "update", "ProcessingTime"
    )


def row_processor(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("k").transformWithState(
        Counting(), "k long, total long", "update", "None"
    )


KINDS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], str]] = {
    "sums": (sums, "update"),
    "windows": (windows, "append"),
    "sessions": (sessions, "append"),
    "distinct": (distinct, "append"),
    "inner join": (inner_join, "append"),
    "outer join": (outer_join, "append"),
    "grouped map": (grouped_map, "update"),
    "processor": (processor, "update"),
    "row processor": (row_processor, "update"),
    "expiring": (expiring, "update"),
}


class Run:
    """One query on a folder of batches; what each batch gave, and what was reported of it."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder
        self.output: dict[int, list[tuple[Any, ...]]] = {}
        self.progress: list[Any] = []

    def take(self, rows: DataFrame, batch: int) -> None:
        self.output[batch] = sorted((tuple(row) for row in rows.collect()), key=repr)

    def start(self, **trigger: Any) -> StreamingQuery:
        build, mode = KINDS[self.kind]
        frames = [
            self.spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / side))
            for side in ("a", "b")
        ]
        return (
            build(frames[0], frames[1])
            .writeStream.outputMode(mode)
            .foreachBatch(self.take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def go(self, theta: float | None = None, *, killed: bool = False, **bound: Any) -> Run:
        """Read all that is there: with Tether's store, or with Spark's RocksDB for None.

        Args:
            theta: Θ.
            killed: What is in memory at the end is lost, as if everything had been killed then.
            bound: More settings of the bound.
        """
        # Spark runs a query by processing time again and again, also when all is read.
        settings = {NO_DATA_BATCHES: str(self.kind != "expiring").lower()}
        if theta is None:
            settings[PROVIDER_CLASS] = ROCKSDB
        settings[PREFIX + "lastBackup"] = str(not killed).lower()
        with ExitStack() as stack:
            if theta is not None:
                stack.enter_context(bounded(self.spark, theta, **bound))
            stack.enter_context(Bounded(self.spark, settings))
            query = self.start()
        query.awaitTermination()
        self.progress += [one for one in query.recentProgress if one.stateOperators]
        return self

    def metric(self, name: str) -> list[int]:
        return [sum(o.customMetrics[name] for o in p.stateOperators) for p in self.progress]


def write_batches(folder: Path, batches: Batches) -> None:
    """Half of a batch's rows on one side, all of them on the other: joins have both to match."""
    for number, rows in enumerate(batches):
        write_batch(folder / "a", number, rows)
        write_batch(folder / "b", number, [(t, k, v + 1) for t, k, v in rows[::2]])
