"""A real query's feed: in memory, on disk, on the page, in the log; both doors."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

import tether
import tether.sql
from tether.algorithms.aggregate import KeyedAggregate
from tether.observe import running
from tether.observe.facts import Ended
from tether.observe.reading import FeedReader
from tether.sql.feeding import SqlFeeds
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EPOCHS, ROWS = 4, 300


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tables = [
        pa.table({"page": [f"p{i % 50}" for i in range(ROWS)], "bytes": [1] * ROWS})
        for _ in range(EPOCHS)
    ]
    write_epochs(tmp_path / "in", tables)
    return tmp_path / "in"


def test_a_query_of_operators(
    spark: SparkSession, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tether.epochs")
    listener = tether.EpochLines()
    spark.streams.addListener(listener)
    query = (
        tether.stream(read_epochs(spark, source, "page string, bytes long"))
        .apply(KeyedAggregate(sums=["bytes"]), key="page", parallelism=2)
        .start(
            tolerance=tether.Approximate(max_state_error=1200),
            backup=str(tmp_path / "backup"),
            checkpoint=str(tmp_path / "checkpoint"),
            name="hits",
            ui={"port": 0, "quiet": True},
        )
    )
    try:
        query.processAllAvailable()
        assert query._page is not None
        with httpx.stream("GET", f"{query._page.address}api/stream", timeout=30) as answer:
            lines = (one for one in answer.iter_lines() if one.startswith("data: "))
            whole = json.loads(next(lines).removeprefix("data: "))
        metrics = httpx.get(f"{query._page.address}metrics").text
        bound = query.bound()
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    feed = query.feed
    assert feed.query is not None
    assert (feed.query.name, feed.query.door) == ("hits", "operators")
    # All that the page shows is what the query itself says.
    total, last = feed.history.total, feed.history.newest
    assert last is not None
    assert (total.epochs, total.rows_in) == (EPOCHS, query.totals()["rows"])
    assert (last.promised, last.spent, last.worst) == (1200, bound.spent, bound.worst_now)
    assert sum(total.backups.values()) == sum(
        event.what == "backup" and event.cause != "flush" for event in query.story()
    )
    assert sum(total.backups.values()) > 0
    assert total.changed == 50 * EPOCHS
    assert len(whole["slots"]["slot"]) == 2
    assert whole["epochs"][-1]["epoch"] <= last.epoch
    assert 'tether_bound_promised{query="hits"} 1200.0' in metrics
    assert [r.getMessage().split(":")[0] for r in caplog.records][:2] == [
        "hits epoch 0",
        "hits epoch 1",
    ]
    assert "wrong by at most" in query._repr_html_()
    assert query.plot().axes
    reader = FeedReader(str(tmp_path / "backup"))
    reader.look()
    assert reader.feed.history.total == total
    assert reader.feed.ended is not None
    assert reader.feed.ended.how == "stopped"
    with pytest.raises(tether.TetherError, match="No snapshot"):
        query.snapshot()


def test_a_bounded_sql_query(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    listener = SqlFeeds(spark)
    spark.streams.addListener(listener)
    rows = read_epochs(spark, source, "page string, bytes long")
    with tether.sql.bounded(spark, max_state_error=100):
        query = (
            rows.groupBy("page")
            .count()
            .writeStream.outputMode("update")
            .format("noop")
            .queryName("sql hits")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
    query.processAllAvailable()
    [bound] = tether.sql.bound(query)
    [told] = listener._queries.values()
    ended = threading.Event()
    told.feed.listen(lambda fact: ended.set() if isinstance(fact, Ended) else None)
    query.stop()
    assert ended.wait(120)  # Spark tells its listeners when it gets to it
    assert told.feed in running.feeds()
    last, total = told.feed.history.newest, told.feed.history.total
    assert last is not None
    assert told.feed.query is not None
    assert (told.feed.query.name, told.feed.query.door) == ("sql hits", "sql")
    assert (total.epochs, total.rows_in) == (EPOCHS, EPOCHS * ROWS)
    assert (last.promised, last.spent) == (100, bound.spent)
    assert total.changed == 50 * EPOCHS
    spark.streams.removeListener(listener)
