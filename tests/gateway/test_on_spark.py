"""A gateway under a real query: exact and approximate policies, kills, and what the bound says then."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.gateway.serving import SEED

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.policies.barrier import Barrier
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tether.observe.facts import GatewayNow
    from tether.testing.gateways import GatewayProcess

pytestmark = pytest.mark.spark
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})


def rows(first: int, count: int) -> pa.RecordBatch:
    values = list(range(first, first + count))
    return pa.record_batch([[value % 10 for value in values], values], schema=SCHEMA)


def query(spark: SparkSession, process: GatewayProcess, folder: Path, **options: Any) -> Any:
    read = spark.readStream.format("tether").option("gateway", process.flight)
    read = read.option("stream", "s").option("maxRowsPerEpoch", "200").option("partitions", "2")
    stream = tether.stream(read.load())
    totals = stream.apply(KeyedAggregate(sums={"total": "v"}, count="n"), key="k", parallelism=2)
    return totals.start(
        backup=str(folder / "backup"), checkpoint=str(folder / "checkpoint"), **options
    )


def answer(running: Any) -> tuple[int, int]:
    found = running.table("totals").collect()
    return sum(row["n"] for row in found), sum(row["total"] for row in found)


def await_trim(calls: GatewayCalls, upto: int) -> None:
    while calls.look("s").committed < upto:
        pass


def await_window(running: Any, limit: float) -> GatewayNow:
    """The gateway as the live page shows it, once that is up to date."""
    while True:
        for now in running.feed.standing.gateways:
            if now.max_pending == limit:
                return now


def test_an_approximate_query_says_what_the_gateway_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    with gateway(tmp_path / "store", "--max-lost", "100000") as process:
        producer = Producer(process.flight, "s", SCHEMA, id="p", max_unacked=100)
        producer.send(rows(0, 500))
        producer.flush()
        tolerance = tether.Approximate(1000, 80, 60)
        running = query(spark, process, tmp_path, tolerance=tolerance)
        running.processAllAvailable()
        calls = GatewayCalls(process.flight)
        # The query's L is less than the gateway's own; half of it may be at risk.
        assert calls.look("s").limit == 40
        assert answer(running) == (500, sum(range(500)))
        await_trim(calls, 500)  # the last epoch too, though no other follows
        producer.send(rows(500, 35))
        producer.flush()
        process.kill()
        process.start()
        lost = process.told["lost"].get("s", 0)
        producer.send(rows(535, 300))
        producer.flush()
        running.processAllAvailable()
        now = running.bound()
        count, total = answer(running)
        # Those of the 35 that an epoch had taken before the kill are there; the others are told.
        missing = 835 - count
        assert missing <= now.items_lost <= 40
        assert now.items_lost <= lost
        assert sum(range(835)) - total <= now.state_error(alpha=835)
        if lost:
            assert calls.look("s").limit == 20
            assert "items-lost" in {event.what for event in running.story()}
        assert running._driver.query.reading  # rows were folded where they were fetched
        window = await_window(running, calls.look("s").limit)
        assert (window.name, window.max_unacked) == (f"s at {process.flight}", 60)
        producer.close()
        running.stop()


@pytest.mark.parametrize(
    "policy", [tether.MiniBatch(), pytest.param(Barrier(3), marks=pytest.mark.long)]
)
def test_an_exact_query_over_a_gateway_that_is_killed_is_exact(
    spark: SparkSession, tmp_path: Path, policy: Any
) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    with gateway(tmp_path / "store", "--max-lost", "100000") as process:
        producer = Producer(process.flight, "s", SCHEMA, id="p", max_unacked=100)
        producer.send(rows(0, 100))
        producer.flush()
        running = query(spark, process, tmp_path, tolerance=policy)
        sent = 100
        for _ in range(3):
            more = dice.randint(1, 400)
            producer.send(rows(sent, more))
            sent += more
            process.kill()
            process.start()
            assert process.told["lost"] == {}
        producer.flush()
        running.processAllAvailable()
        assert answer(running) == (sent, sum(range(sent)))
        assert running.bound().items_lost == 0
        running.stop()
        again = query(spark, process, tmp_path, tolerance=policy)
        producer.send(rows(sent, 10))
        producer.flush()
        again.processAllAvailable()
        assert answer(again) == (sent + 10, sum(range(sent + 10)))
        producer.close()
        again.stop()
