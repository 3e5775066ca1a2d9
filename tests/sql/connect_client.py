"""A client of Spark Connect that tries what docs/connect.md says of it; a process of its own.

A process has either a client's session or a classic one. Arguments: the server's address, a folder.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tether
import tether.sql
from tether.core.errors import TetherError
from tether.sql.checkpoint import describe_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "user string, bytes long"
ROWS = [(user, 10) for user in ("ann", "bob", "eve")] * 3
LONGEST_SECONDS = 120


def main(address: str, folder: str) -> None:
    work = Path(folder)
    spark = SparkSession.builder.remote(address).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(work / "events"))
    events = spark.readStream.schema(SCHEMA).parquet(str(work / "events"))
    story = tether.sql.Storyteller()
    spark.streams.addListener(story)

    def totals(checkpoint: str, name: str) -> StreamingQuery:
        """Until all is read; the answer is the table of this name."""
        query = (
            events.groupBy("user")
            .agg(F.sum("bytes").alias("total"))
            .writeStream.outputMode("complete")
            .format("memory")
            .queryName(name)
            .option("checkpointLocation", str(work / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LONGEST_SECONDS)
        return query

    told: dict[str, Any] = {}
    with tether.sql.bounded(spark, max_state_error=1000):
        query = totals("bounded", "first")
        (bound,) = tether.sql.bound(query)
        told["bound"] = [bound.spent, bound.at_risk, bound.threshold]
        told["answer"] = answer(spark, "first")
        # A driver's own function runs at the server, in a Python of its own.
        given = work / "given"

        def give(rows: DataFrame, batch: int) -> None:
            rows.write.mode("append").parquet(str(given))

        each = events.groupBy("user").count().writeStream.outputMode("update").foreachBatch(give)
        each = each.option("checkpointLocation", str(work / "each")).trigger(availableNow=True)
        started = each.start()
        assert started.awaitTermination(LONGEST_SECONDS)
        told["for_each"] = sorted(map(tuple, spark.read.parquet(str(given)).collect()))
        # All that was read is durable when a query has ended: the restart adds to it.
        spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.mode("append").parquet(
            str(work / "events")
        )
        totals("bounded", "second")
        told["again"] = answer(spark, "second")
    told["after_the_block"] = spark.conf.get(
        "spark.sql.streaming.stateStore.tether.maxStateError", "unset"
    )
    told["state"] = spark.read.format("statestore").load(str(work / "bounded")).count()
    report = describe_checkpoint(str(work / "bounded"), verify=True)
    told["stores"] = [len(report.stores), report.spent]
    told["rewound"] = tether.sql.rewind(str(work / "bounded")).batches_again
    deadline = time.monotonic() + LONGEST_SECONDS
    while not story.events() and time.monotonic() < deadline:  # the server sends them in the end
        time.sleep(0.1)
    told["story"] = sorted({event.what for event in story.events()})
    told["operators"] = refusal(lambda: tether.stream(events))
    told["overlapped"] = refusal(lambda: tether.sql.overlapped_checkpoints(spark))
    print(json.dumps(told))
    spark.stop()


def answer(spark: SparkSession, table: str) -> dict[str, int]:
    """What a query has put into a table in memory."""
    return {row["user"]: row["total"] for row in spark.table(table).collect()}


def refusal(call: Callable[[], Any]) -> list[str]:
    """What is said against a call, and what to do."""
    try:
        call()
    except TetherError as error:
        return [error.what, error.do]
    return []


if __name__ == "__main__":
    main(*sys.argv[1:])
