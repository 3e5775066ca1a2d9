"""Page counts from one Kafka topic into another, with a bound, while the broker is killed.

Run it with ``make kafka``: it starts a broker of its own on loopback, from jars that it fetches once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from pyspark.sql import functions as F

import tether
from tether.cli.session import open_session
from tether.testing.kafka import connector_jars, running_broker

PAGES = 50
ROWS = 4_000
EPOCHS = 6


def main(jars: Path) -> dict[str, object]:
    """Produce, count, kill and restart the broker, count on, and compare with the truth."""
    connector = ",".join(map(str, connector_jars(jars)))
    work = Path(tempfile.mkdtemp(prefix="tether-kafka-"))
    with running_broker(work / "broker", jars) as broker:
        broker.create_topic("views")
        broker.create_topic("counts")
        settings = {"spark.jars": connector, "spark.sql.shuffle.partitions": "2"}
        spark = open_session("local[2,4]", app="kafka counts", conf=settings)
        truth: Counter[str] = Counter()

        def produce(seed: int) -> None:
            pages = spark.range(ROWS).select(
                F.concat(F.lit("page-"), (F.hash("id", F.lit(seed)) % PAGES).cast("string")).alias(
                    "value"
                )
            )
            pages = pages.localCheckpoint()
            writer = pages.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
            writer.option("topic", "views").save()
            truth.update(row.value for row in pages.collect())

        def count() -> tether.Query:
            views = (
                spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", broker.address)
                .option("subscribe", "views")
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", ROWS)
                .load()
                .select(F.col("value").cast("string").alias("page"))
            )
            return (
                tether.stream(views)
                .groupBy("page")
                .count()
                .outputMode("update")
                .parallelism(2)
                .option("checkpointLocation", work / "checkpoint")
                .option("backupLocation", work / "backup")
                .trigger(availableNow=True)
                .start(
                    tether.to_kafka(broker.address, "counts", key="page"),
                    tolerance=tether.Approximate(max_state_error=500),
                )
            )

        for seed in range(EPOCHS // 2):
            produce(seed)
        count().awaitTermination()
        broker.kill()  # SIGKILL: what was acknowledged is on its disk
        broker.start()
        for seed in range(EPOCHS // 2, EPOCHS):
            produce(seed)
        query = count()
        query.awaitTermination()
        written = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", broker.address)
            .option("subscribe", "counts")
            .option("includeHeaders", "true")
            .load()
        )
        rows = tether.rows_once(written, "page string, count long").collect()
        newest: dict[str, tuple[int, int]] = {}
        for row in rows:
            newest[row.page] = max(newest.get(row.page, (-1, 0)), (row.epoch, row["count"]))
        spark.stop()
    answer = {page: counted for page, (_, counted) in newest.items()}
    bound = query.bound()
    return {
        "rows": sum(truth.values()),
        "pages": len(answer),
        "wrong_by": sum(abs(answer.get(page, 0) - truth[page]) for page in truth),
        "bound_now": bound.spent,
        "promised": bound.promised,
        "records_written": len(rows),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "tether" / "kafka")
    result = main(parser.parse_args().jars)
    print(json.dumps(result, indent=2))
    assert result["wrong_by"] <= result["bound_now"], "the answer is outside its bound"
