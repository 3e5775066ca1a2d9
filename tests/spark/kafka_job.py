"""Counts of pages from one topic into another, by either door, as a process that may be killed."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from tests.jobs import Ended, run_job, say
from tests.spark.commands import from_the_start

import tether
import tether.sql
from tether.chaos.faults import Fault  # noqa: TC001 - msgspec reads the annotation
from tether.cli.session import open_session
from tether.core.errors import TetherError
from tether.policies.parse import parse_policy
from tether.testing.leftovers import Leftovers

PARTITIONS = 2


class Order(msgspec.Struct):
    """What the process is to do: read all that is in the topic now, and tell."""

    work: str
    server: str
    connector: str
    master: str
    policy: str
    """For operators; or "sql:Θ"."""
    rows: int
    """Of an epoch, at most."""
    faults: list[Fault] = []
    kill_at: int = -1
    """SQL door: the batch in which the driver is killed, once."""
    rewind: bool = False
    """SQL door: go back first, to where all is exact."""
    fail_on_data_loss: bool = True


@dataclass
class KafkaJob:
    """Run it again to go on where it stopped."""

    work: Path
    server: str
    connector: str
    policy: str
    master: str = "local[2,4]"
    rows: int = 500
    left: Leftovers = field(default_factory=Leftovers)

    def run(self, **more: Any) -> Ended:
        """Start it, and wait for its end."""
        places = (str(self.work), self.server, self.connector)
        order = Order(*places, self.master, self.policy, self.rows, **more)
        environment = {}
        if "cluster" in self.master:
            conf = " ".join(f"--conf {a}={b}" for a, b in from_the_start(2).items())
            environment["PYSPARK_SUBMIT_ARGS"] = f"{conf} pyspark-shell"
        return run_job(__name__, order, self.work, self.left, **environment)

    def log(self) -> str:
        """The end of what it has logged."""
        return (self.work / "log").read_text()[-4000:]


# ---- in the process --------------------------------------------------------------------------------


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    conf = {"spark.jars": order.connector, "spark.sql.shuffle.partitions": str(PARTITIONS)}
    spark = open_session(order.master, app="kafka job", memory="1g", conf=conf)
    views = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order.server)
        .option("subscribe", "views")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", str(order.fail_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", order.rows)
        .load()
        .select(F.col("value").cast("string").alias("page"))
    )
    try:
        told = (plain if order.policy.startswith("sql:") else operators)(order, views)
    except TetherError as error:
        told = {"error": {"what": error.what, "do": error.do}}
    except StreamingQueryException as error:
        told = {"error": {"what": str(error), "do": ""}}
    written = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", order.server)
        .option("subscribe", "counts")
        .option("includeHeaders", "true")
        .load()
    )
    rows = tether.rows_once(written, "page string, count long").collect()
    newest: dict[str, tuple[int, int]] = {}
    for row in rows:
        newest[row.page] = max(newest.get(row.page, (-1, 0)), (row.epoch, row["count"]))
    told["written"], told["once"] = written.count(), len(rows)
    told["answer"] = {page: count for page, (_, count) in newest.items()}
    say(told)
    spark.stop()


def operators(order: Order, views: Any) -> dict[str, Any]:
    query = (
        tether.stream(views)
        .groupBy("page")
        .count()
        .outputMode("update")
        .parallelism(PARTITIONS)
        .option("checkpointLocation", f"{order.work}/checkpoint")
        .option("backupLocation", f"{order.work}/backup")
        .trigger(availableNow=True)
        .start(
            tether.to_kafka(order.server, "counts", key="page"),
            tolerance=parse_policy(order.policy),
            arena_scope="executor",
            faults=order.faults,
        )
    )
    query.awaitTermination()
    told = query.bound()
    return {"spent": told.spent, "what": sorted({event.what for event in query.story()})}


def plain(order: Order, views: Any) -> dict[str, Any]:
    checkpoint = f"{order.work}/checkpoint"
    told: dict[str, Any] = {}
    if order.rewind:
        told["again"] = tether.sql.rewind(checkpoint).batches_again
    sink = tether.to_kafka(order.server, "counts", key="page")
    struck = Path(order.work) / "struck"

    def give(rows: Any, batch: int) -> None:
        sink(rows, batch)
        if batch == order.kill_at and not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    theta = float(order.policy.removeprefix("sql:"))
    with tether.sql.bounded(views.sparkSession, max_state_error=theta, replay_every=3):
        query = (
            views.groupBy("page")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(give)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
    query.awaitTermination()
    (bound,) = tether.sql.bound(query)
    return {**told, "spent": bound.spent, "failures": bound.failures}


if __name__ == "__main__":
    main()
