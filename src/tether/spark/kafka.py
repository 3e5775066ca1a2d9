"""Kafka as a sink, with every row once for readers that use the row's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tether.spark.epoch_sink import EPOCH, ROW, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tether.spark.sinks import Sink


def to_kafka(servers: str, topic: str, *, key: str | Sequence[str] = (), **options: str) -> Sink:
    """A sink that writes every row to a topic, with its epoch and number in the headers.

    A record's value is the row as JSON; its key is the JSON of the key columns, if any were named. Spark
    writes to Kafka at least once: an epoch that is run again, after a broker or an executor has died, is
    written again, with the same numbers. So a reader that uses the numbers gets every row once: use
    ``rows_once`` with Spark, or keep the newest ``epoch`` of a key anywhere else.

    Args:
        servers: Kafka's bootstrap servers, for example "localhost:9092".
        topic: Where to write.
        key: Columns that make the record's key. Name them where they tell the rows of an epoch apart:
            without them an epoch that is run again with state from an approximate backup may give its
            rows in another order, and so with other numbers.
        options: Further options of Spark's Kafka writer, as ``**{"kafka.acks": "all"}``.

    Example:
        >>> callable(to_kafka("localhost:9092", "counts", key="page"))
        True
    """
    names = [key] if isinstance(key, str) else list(key)

    def write(rows: DataFrame, epoch: int) -> None:
        del epoch
        shown = [F.col(f"`{name}`") for name in rows.columns if name not in (EPOCH, ROW)]
        header = F.array(
            *(
                F.struct(
                    F.lit(name).alias("key"),
                    F.col(column).cast("string").cast("binary").alias("value"),
                )
                for name, column in (("epoch", EPOCH), ("row", ROW))
            )
        )
        keyed = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names))) if names else None
        records = rows.select(
            *([keyed.alias("key")] if keyed is not None else []),
            F.to_json(F.struct(*shown)).alias("value"),
            header.alias("headers"),
        )
        writer = records.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).option("includeHeaders", "true").options(**options).save()

    return numbered(write, names)


def rows_once(records: DataFrame, schema: str) -> DataFrame:
    """The rows that ``to_kafka`` wrote, each once, with ``epoch`` and ``row`` beside them.

    Args:
        records: Read from the topic with the option ``includeHeaders``; static or streaming.
        schema: The rows' columns, as Spark takes a schema.
    """
    named = F.map_from_entries(F.col("headers"))
    value = F.from_json(F.col("value").cast("string"), schema)
    rows = records.select(
        value.alias("value"),
        *(named[name].cast("string").cast("long").alias(name) for name in ("epoch", "row")),
    )
    return rows.dropDuplicates(["epoch", "row"]).select("epoch", "row", "value.*")
