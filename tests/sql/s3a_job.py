"""A query whose checkpoint is in S3, by either door, as a process that may be killed.

Python reads such a checkpoint too, and takes the store's address from the environment.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import functions as F
from tests.jobs import say

import tether
import tether.sql
from tether.chaos.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.cli.session import open_session
from tether.policies.parse import parse_policy
from tether.sql.checkpoint import describe_checkpoint
from tether.testing.epochs import read_epochs

SCHEMA = "k long, v long"


class Order(msgspec.Struct):
    """What the process is to do: read all that is there, and tell."""

    work: str
    place: str
    """Bucket and folder."""
    policy: str
    """For operators; or "sql:Θ"."""
    conf: dict[str, str]
    faults: list[Fault] = []
    kill_at: int = -1
    """SQL door: the batch in which the driver is killed, once."""


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    conf = {**order.conf, "spark.sql.shuffle.partitions": "2"}
    spark = open_session("local[2,4]", app="s3a job", memory="1g", conf=conf)
    rows = read_epochs(spark, Path(order.work) / "in", SCHEMA)
    say((plain if order.policy.startswith("sql:") else operators)(order, rows))
    spark.stop()


def operators(order: Order, rows: Any) -> dict[str, Any]:
    answer: dict[str, int] = {}
    query = (
        tether.stream(rows)
        .groupBy("k")
        .agg(F.sum("v").alias("total"))
        .outputMode("complete")
        .parallelism(2)
        .option("checkpointLocation", f"s3a://{order.place}/checkpoint")
        .option("backupLocation", f"s3://{order.place}/backup")
        .start(
            lambda df, _: answer.update({str(row["k"]): row["total"] for row in df.collect()}),
            tolerance=parse_policy(order.policy),
            faults=order.faults,
        )
    )
    query.processAllAvailable()
    spent = query.bound().spent
    query.stop()
    return {"answer": answer, "spent": spent}


def plain(order: Order, rows: Any) -> dict[str, Any]:
    checkpoint = f"s3a://{order.place}/checkpoint"
    answer: dict[str, int] = {}
    struck = Path(order.work) / "struck"

    def give(changed: Any, batch: int) -> None:
        answer.update({str(row["k"]): row["total"] for row in changed.collect()})
        if batch == order.kill_at and not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    before = describe_checkpoint(checkpoint).last_batch  # a listing that must not be taken for new
    with tether.sql.bounded(rows.sparkSession, max_state_error=float(order.policy[4:])):
        query = (
            rows.groupBy("k")
            .agg(F.sum("v").alias("total"))
            .writeStream.outputMode("complete")
            .foreachBatch(give)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
    query.awaitTermination()
    (bound,) = tether.sql.bound(query)
    report = describe_checkpoint(checkpoint, verify=True)
    return {
        "answer": answer,
        "spent": bound.spent,
        "damage": [fault for store in report.stores for fault in store.damage],
        "batches": [before, report.last_batch],
    }


if __name__ == "__main__":
    main()
