"""Kafka as a sink, with every row once for readers that use the row's number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tether.spark.epoch_sink import EPOCH, ROW, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tether.spark.sinks import Sink

_NUMBERS = ("run", "from", "epoch", "row")
"""Headers of a record."""


class Runs:
    """Which run of its epochs a sink is in: epochs that come again begin another one.

    A query that goes back, or starts again, gives some epochs a second time, and may cut them
    differently. So all that an earlier run said of these epochs, and of later ones, is void.

    Example:
        >>> runs = Runs()
        >>> first, _ = runs.of(3)
        >>> runs.of(4) == (first, 3)
        True
        >>> again, since = runs.of(4)
        >>> again > first, since
        (True, 4)
    """

    def __init__(self) -> None:
        self._run, self._since, self._last = 0, 0, -1

    def of(self, epoch: int) -> tuple[int, int]:
        """Number of the run that gives this epoch now, larger for later ones, and its first epoch."""
        if not self._run or epoch <= self._last:
            # The clock: a driver that is started again knows nothing of the one before.
            self._run = max(time.time_ns() // 1_000_000, self._run + 1)
            self._since = epoch
        self._last = epoch
        return self._run, self._since


def to_kafka(servers: str, topic: str, *, key: str | Sequence[str] = (), **options: str) -> Sink:
    """A sink that writes every row to a topic, with its epoch and number in the headers.

    A record's value is the row as JSON; its key is the JSON of the key columns, if any were named. Spark
    writes to Kafka at least once: an epoch that is run again, after a broker, an executor or the driver
    has died, is written again, in a new run. Readers get every row once with ``rows_once``; or keep the
    row of the highest run and epoch for each key, anywhere else.

    Args:
        servers: Kafka's bootstrap servers, for example "localhost:9092".
        topic: Where to write.
        key: Columns that make the record's key. Name them where they tell the rows of an epoch apart:
            without them a task that is run again with state from an approximate backup may give its
            rows in another order, and so with other numbers.
        options: Further options of Spark's Kafka writer, as ``**{"kafka.acks": "all"}``.

    Example:
        >>> callable(to_kafka("localhost:9092", "counts", key="page"))
        True
    """
    names, runs = [key] if isinstance(key, str) else list(key), Runs()

    def write(rows: DataFrame, epoch: int) -> None:
        writer = as_records(rows, names, *runs.of(epoch)).write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
        writer.option("includeHeaders", "true").options(**options).save()

    return numbered(write, names)


def as_records(rows: DataFrame, key: Sequence[str], run: int, since: int) -> DataFrame:
    """Numbered rows as Spark's Kafka writer takes them.

    Args:
        rows: With their epoch and number.
        key: Columns of the record's key.
        run: Which run gives them.
        since: Its first epoch.
    """
    numbers = zip(_NUMBERS, (F.lit(run), F.lit(since), F.col(EPOCH), F.col(ROW)), strict=True)
    headers = F.array(
        *(
            F.struct(
                F.lit(name).alias("key"),
                number.cast("string").cast("binary").alias("value"),
            )
            for name, number in numbers
        )
    )
    shown = [F.col(f"`{name}`") for name in rows.columns if name not in (EPOCH, ROW)]
    keyed = [F.to_json(F.struct(*(F.col(f"`{name}`") for name in key))).alias("key")] if key else []
    return rows.select(*keyed, F.to_json(F.struct(*shown)).alias("value"), headers.alias("headers"))


def rows_once(records: DataFrame, schema: str) -> DataFrame:
    """The rows that ``to_kafka`` wrote, each once, with ``run``, ``epoch`` and ``row`` beside them.

    Of a topic that is read as a whole: what an earlier run said of an epoch that was run again is left
    out. Of a stream: the rows of every run, each once; what came before cannot be taken back, so keep
    the row of the highest ``run`` and ``epoch`` for each key.

    Args:
        records: Read from the topic with the option ``includeHeaders``; static or streaming. While
            somebody writes to the topic, read it with fixed ``endingOffsets``: it is read twice.
        schema: The rows' columns, as Spark takes a schema.
    """
    named = F.map_from_entries(F.col("headers"))
    value = F.from_json(F.col("value").cast("string"), schema)
    numbers = {name: named[name].cast("string").cast("long") for name in _NUMBERS}
    for name in ("run", "from"):  # earlier versions wrote neither: theirs is the first run
        numbers[name] = F.coalesce(numbers[name], F.lit(0))
    rows = records.select(
        value.alias("value"), *(number.alias(name) for name, number in numbers.items())
    )
    if not records.isStreaming:
        later = rows.select(F.col("run").alias("__run"), F.col("from").alias("__from")).distinct()
        void = (F.col("__run") > F.col("run")) & (F.col("__from") <= F.col("epoch"))
        rows = rows.join(F.broadcast(later), void, "left_anti")
    rows = rows.dropDuplicates(["run", "epoch", "row"])
    return rows.select("run", "epoch", "row", "value.*")
