"""Any streaming DataFrame behind an exchange, by a query of its own."""

from __future__ import annotations

import threading
import time as clock
from typing import TYPE_CHECKING, Any, Literal

from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.sources.exchange.sink import ExchangeSink, to_exchange
from tether.sources.leaves import leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def ingest(
    rows: DataFrame,
    path: str,
    *,
    checkpoint: str,
    time: str | None = None,
    disorder: float = 0.0,
    boundary: str | None = None,
    boundaries: Literal["rows", "clock", "gateway"] = "rows",
    heartbeat: float = 1.0,
    producers: int = 1,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Put a streaming DataFrame behind an exchange, by a query of its own.

    So one input's failure never fails those who read several, and what was read once can be read again.

    Args:
        rows: Kafka, files, anything that Spark reads as a stream; DataFrame steps included.
        path: The exchange: a directory or URL.
        checkpoint: Spark's checkpoint directory of this query.
        time: Column with the tuple time; None: the time at which rows are ingested.
        disorder: How much older than the newest one before it a row may be; see ``to_exchange``.
        boundary: SQL expression for boundaries; see ``to_exchange``.
        boundaries: ``"rows"``: the newest row says how far the input has come, so an input without rows
            counts as silent. ``"clock"``: the machine's clock says so, also while no rows come; rows
            must arrive within ``disorder`` seconds of their time. That is how rows without a ``time``
            are always treated. ``"gateway"``: the rows come from gateways, and their producers say so
            (``Producer.boundary``, event time in seconds).
        heartbeat: Seconds between two boundaries by the clock.
        producers: How many producers send to the gateways: nothing is known before each of them has
            said something.
        trigger: As for Spark's ``writeStream.trigger``.
        name: Name of the query in Spark.
        options: For the file system of the URL.

    Returns:
        Spark's own handle.
    """
    if boundaries not in ("rows", "clock", "gateway"):
        raise BadValueError(
            f"boundaries={boundaries!r} is not known.", do='Use "rows", "clock" or "gateway".'
        )
    every = amount("heartbeat", heartbeat, unit="seconds", zero=None, infinite=None)
    sink = to_exchange(path, time=time, disorder=disorder, boundary=boundary, options=options)
    if boundaries == "gateway":
        sink.boundaries = _said_by_producers(rows, checkpoint, producers, time)
    sink.create(rows)
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    query = writer.start()
    if boundaries == "clock" or time is None:
        thread = threading.Thread(
            target=_beat, args=(query, sink, every, disorder), name="tether-heartbeat", daemon=True
        )
        thread.start()
    return query


def _said_by_producers(
    rows: DataFrame, checkpoint: str, producers: int, time: str | None
) -> Callable[[int], int | None]:
    from tether.sources.exchange.gateway_boundaries import (  # noqa: PLC0415 - loads Arrow Flight's parts
        GatewayBoundaries,
    )
    from tether.sources.gateway.spark_source import FORMAT, SourceOptions  # noqa: PLC0415

    found = leaves_of(rows, FORMAT)
    if len(found) != 1 or time is None:
        raise BadValueError(
            'boundaries="gateway" cannot be used here.',
            why="It takes rows of one stream of gateways, and a column with their event time.",
            do='Read one with spark.readStream.format("tether"), and name the column as time.',
        )
    return GatewayBoundaries(SourceOptions.parse(found[0]), checkpoint, producers).before


def _beat(query: StreamingQuery, sink: ExchangeSink, every: float, disorder: float) -> None:
    while not query.awaitTermination(every):
        sink.heartbeat(int((clock.time() - disorder) * 1_000_000))
