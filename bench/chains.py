"""A chain of queries whose first has an input that falls silent (DPC 2005, Figure 11).

Failures and corrections travel down, from exchange to exchange; what the last query gives is looked at.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tether
from bench.silences import Feed, Numbered, Sink, judged, stable_to, until
from bench.streams import scratch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tether.spark.query import Query

BUCKET = 0.5
"""Seconds."""
RATE = 900
"""Rows a second, of all inputs together: several queries share two cores."""


def chained(
    session: SparkSession, policy: tether.Available, length: int, seconds: float
) -> dict[str, Any]:
    """One input of the first query is cut off for some seconds.

    Args:
        session: Spark's.
        policy: Of every query; X is for each of them.
        length: Number of queries.
        seconds: Length of the failure.
    """
    with scratch() as work:
        feed = Feed(work, RATE)
        sink = Sink(str(work / f"checkpoint{length - 1}"))
        queries: list[Query] = []
        try:
            feed.start()
            paths = feed.paths
            for number in range(length):
                last = number == length - 1
                queries.append(
                    _query(
                        session,
                        work,
                        number,
                        paths=paths,
                        policy=policy,
                        sink=sink if last else None,
                    )
                )
                paths = [str(work / f"out{number}")]
                until(queries[-1], lambda n=number, end=last: _begun(work, n, sink, last=end), 120)
            until(queries[-1], lambda: len(sink.given) > 12, 120)
            warm = time.time()
            feed.silence()
            time.sleep(seconds)
            feed.heal()
            healed = time.time()
            until(
                queries[-1],
                lambda: (
                    all(query.healing() is None for query in queries)
                    and stable_to(sink, BUCKET) >= feed.cut_between[1]
                ),
                240,
            )
            took = time.time() - healed
            feed.end()
            end = int(feed.arrived[-1][0] // (BUCKET * 1e6) * (BUCKET * 1e6))
            # Each further query may keep one bucket back, for which no boundary has come yet.
            told = end - (length - 1) * BUCKET * 1e6
            until(queries[-1], lambda: stable_to(sink, BUCKET) >= told, 60)
        finally:
            for query in reversed(queries):
                query.stop()
        found = judged(sink, feed, policy, (warm, healed), stable_to(sink, BUCKET))
        return found | {"length": length, "seconds": seconds, "reconcile_s": round(took, 2)}


def _query(
    session: SparkSession,
    work: Path,
    number: int,
    *,
    paths: list[str],
    policy: tether.Available,
    sink: Sink | None,
) -> Query:
    rows = tether.subscribe(
        session,
        paths,
        reader=f"q{number}",
        bucket=BUCKET if number == 0 else BUCKET * 1e6,
        tolerance=policy,
        partitions=1,
        most_buckets=10,
    )
    if number:
        rows = rows.select("key", "value")
    output: Any = sink
    if output is None:
        output = tether.to_exchange(str(work / f"out{number}"), time="at")
    stream = tether.stream(rows).apply(Numbered(), key="key", parallelism=1)
    if sink is None:
        stream = stream.transform(
            lambda given: given.selectExpr("key", "value", "value div 4 AS at")
        )
    return stream.start(
        output,
        tolerance=policy,
        backup=str(work / f"backup{number}"),
        checkpoint=str(work / f"checkpoint{number}"),
    )


def _begun(work: Path, number: int, sink: Sink, *, last: bool) -> bool:
    return bool(sink.given) if last else (work / f"out{number}" / "exchange.json").exists()
