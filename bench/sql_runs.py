"""Runs of one plain stateful query on one state store, for the sql benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from bench.counts import DEFAULT, ROCKSDB, SCHEMA, Digest, _digest
from bench.harness import Measurement, say
from bench.streams import epoch_times, scratch
from tether.sql import bounded
from tether.testing.epochs import read_epochs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BUDGET = 500_000
"""Θ: changed rows, over all partitions."""
OURS, EXACT = "tether: 500,000 changed rows", "tether: exact"
CHANGELOG, HDFS = "spark: RocksDB, changelog", "spark: default store"
STATELESS = "spark: no state"
STORES = (OURS, EXACT, CHANGELOG, HDFS)
STORE = "spark.sql.streaming.stateStore"


@dataclass(frozen=True)
class Workload:
    """Epochs of rows, and what their keys add up to."""

    source: Path
    truth: Digest
    epochs: int
    skip: int
    """Epochs at the beginning that are not measured."""


def configure(session: SparkSession, name: str, budget: float = BUDGET) -> None:
    """The session's next query keeps its state in this contender's store."""
    if name in (OURS, EXACT):
        bounded(session, max_state_error=budget if name == OURS else 0)
        return
    session.conf.set(f"{STORE}.providerClass", DEFAULT if name == HDFS else ROCKSDB)
    session.conf.set(
        f"{STORE}.rocksdb.changelogCheckpointing.enabled", str(name == CHANGELOG).lower()
    )


def start(session: SparkSession, source: str, checkpoint: str) -> StreamingQuery:
    """The query: a sum for every key."""
    totals = read_epochs(session, Path(source), SCHEMA).groupBy("k").agg(F.sum("v").alias("total"))
    writer = totals.writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def stateless(session: SparkSession, work: Workload, partitions: int) -> Measurement:
    """Each epoch aggregated by itself: what remains when a state store costs nothing at all."""

    def epoch(rows: DataFrame, number: int) -> None:
        del number
        rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        totals = rows.groupBy("k").agg(F.sum("v").alias("total"))
        totals.write.format("noop").mode("append").save()

    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    with scratch() as directory:
        writer = read_epochs(session, work.source, SCHEMA).writeStream.foreachBatch(epoch)
        writer = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        progress = with_rows(query)
    return Measurement(epoch_times(progress, work.skip), len(progress) == work.epochs)


def stateful(
    session: SparkSession,
    work: Workload,
    partitions: int,
    name: str,
    place: str,
) -> Measurement:
    """The query on one store; ``place`` goes before the path of its checkpoint."""
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    configure(session, name)
    with scratch() as directory:
        checkpoint = directory / "checkpoint"
        collected = _gc_ms(session)
        query = start(session, str(work.source), f"{place}{checkpoint}")
        query.awaitTermination()
        collected = _gc_ms(session) - collected
        progress = with_rows(query)
        state = progress[-1]["stateOperators"][0]
        times = epoch_times(progress, work.skip)
        detail = {
            "bytes_written": _bytes(checkpoint / "state"),
            "bytes_per_key": state["memoryUsedBytes"] / state["numRowsTotal"],
            "gc_ms": collected,
            "commit_ms": [one["stateOperators"][0]["commitTimeMs"] for one in progress][
                work.skip :
            ],
            "bound_violations": violations(progress),
            "wrong_answers": 0,
        }
        # Closing the stores makes ours durable to the last row, so that the state can be read.
        close_stores(session)
        answer = _digest(stored(session, str(checkpoint)), "k", "total")
    say(f"  {name}: {sorted(times)} ms, {detail}")
    return Measurement(times, answer == work.truth, detail)


def restart(session: SparkSession, work: Workload, later: Path, name: str) -> Measurement:
    """Time of the first epoch of a query that starts again with nothing in memory."""
    session.conf.set("spark.sql.shuffle.partitions", "2")
    configure(session, name)
    with scratch() as directory:
        everything, checkpoint = directory / "in", str(directory / "checkpoint")
        everything.mkdir()
        for path in sorted(work.source.iterdir()):
            (everything / path.name).symlink_to(path)
        start(session, str(everything), checkpoint).awaitTermination()
        wrong = wrong_rows(session, work.source, checkpoint)
        for path in sorted(later.iterdir()):
            (everything / f"z-{path.name}").symlink_to(path)
        query = start(session, str(everything), checkpoint)
        query.awaitTermination()
        progress = with_rows(query)
        # What a restart finds may lack the latest changes of at most Θ/2 rows, of none where exact.
        within = wrong <= (BUDGET / 2 if name == OURS else 0)
        detail = {
            "wrong_rows_before": wrong,
            "bound_violations": violations(progress),
            "wrong_answers": 0 if within else 1,
        }
        close_stores(session)
    return Measurement(epoch_times(progress, 0)[:1], within, detail)


def wrong_rows(session: SparkSession, source: Path, checkpoint: str) -> int:
    """Keys whose stored sum is not the true one."""
    totals = session.read.parquet(str(source)).groupBy("k").agg(F.sum("v").alias("expected"))
    found = stored(session, checkpoint).join(totals, "k", "right")
    return found.where("total IS NULL OR total != expected").count()


def stored(session: SparkSession, checkpoint: str) -> DataFrame:
    """What a checkpoint holds, as Spark's own reader of state sees it."""
    state = session.read.format("statestore").load(checkpoint)
    return state.selectExpr("key.k AS k", "value.sum AS total")


def with_rows(query: StreamingQuery) -> list[dict[str, Any]]:
    """Progress of the epochs that had input."""
    return [one for one in query.recentProgress if one["numInputRows"]]


def close_stores(session: SparkSession) -> None:
    """Unload all stores of this process, as Spark does some time after a query has ended."""
    stores: Any = session.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state
    stores.StateStore.stop()


def violations(progress: list[dict[str, Any]]) -> int:
    """Committed epochs after which the divergence was above its threshold."""
    found = [one["stateOperators"][0]["customMetrics"] for one in progress]
    return sum(
        metrics["tetherDivergence"] > metrics["tetherThreshold"]
        for metrics in found
        if "tetherDivergence" in metrics
    )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _gc_ms(session: SparkSession) -> int:
    jvm: Any = session.sparkContext._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sum(bean.getCollectionTime() for bean in beans)
