"""Inputs behind exchanges, a silent one among them, and a second query behind the first: on Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.core.errors import BadValueError, QueryRefusedError
from tether.sources.exchange.files import read_file
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.exchange.view import rows_between
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark
PATIENCE = 120.0
"""Seconds until something that must happen is taken never to."""


def wait_for(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows(number: int, first: int, end: int) -> pa.Table:
    times = [time_ for time_ in range(first, end) for _ in range(2)]
    return pa.table({"v": [1000 * number + i for i in range(len(times))], "t": times})


def entries(path: Path, kind: str) -> list[Any]:
    return [
        entry for entry in ExchangeAddress(url=str(path)).open().entries(0) if entry.kind == kind
    ]


def test_an_input_falls_silent_and_comes_back(spark: Any, tmp_path: Path) -> None:  # noqa: PLR0915
    def taken_in(number: int) -> None:
        query = tether.ingest(
            read_epochs(spark, tmp_path / f"in{number}", "v long, t long"),
            str(tmp_path / f"x{number}"),
            checkpoint=str(tmp_path / f"taking{number}"),
            time="t",
            boundary="t + 1",
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(PATIENCE)

    ends = [30, 30, 20]
    for number, end in enumerate(ends):
        write_epochs(tmp_path / f"in{number}", [rows(number, 0, end)])
        taken_in(number)

    inputs = [str(tmp_path / f"x{number}") for number in range(3)]
    checkpoint = str(tmp_path / "checkpoint")
    early = tether.subscribe(spark, inputs, reader="totals", bucket=10, delay=0.5, places=True)
    sink = tether.to_exchange(str(tmp_path / "out"), time="t", subscription=checkpoint)
    runs: dict[int, list[list[Any]]] = {}

    def each(batch: Any, epoch: int) -> None:
        runs.setdefault(epoch, []).append([tuple(row) for row in batch.collect()])
        if epoch == 0 and len(runs[0]) == 1:
            raise RuntimeError("on purpose, before the epoch is written")
        sink(batch, epoch)
        if epoch == 0 and len(runs[0]) == 2:
            raise RuntimeError("on purpose, after the epoch is written")

    def begin() -> Any:
        writer = early.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        return writer.start()

    for _ in range(2):
        query = begin()
        with pytest.raises(Exception, match="on purpose"):
            query.awaitTermination(PATIENCE)
    query = begin()
    try:
        wait_for(lambda: entries(tmp_path / "out", "tentative") or query.exception())
        write_epochs(tmp_path / "in2", [rows(2, 20, 30)], first=1)
        taken_in(2)
        wait_for(
            lambda: (
                any(entry.done for entry in entries(tmp_path / "out", "stable"))
                or query.exception()
            )
        )
        assert query.exception() is None
    finally:
        query.stop()

    assert (
        runs[0][0] == runs[0][1] == runs[0][2]
    )  # a retry and a restart: the same rows, the same order
    first, *_, last = runs[0][0]
    assert (first[2:5], last[1]) == (("stable", 0, 20), 19)
    kinds = [run[-1][0][2] for _, run in sorted(runs.items()) if run[-1]]
    assert kinds == ["stable", "tentative", "stable"]

    # Behind it a second query, which wants stable rows only.
    after = tether.subscribe(spark, [str(tmp_path / "out")], reader="after", bucket=10, places=True)
    assert after.columns[:2] == ["v", "t"]
    got: list[Any] = []
    second = (
        after.writeStream.foreachBatch(lambda batch, epoch: got.extend(batch.collect()))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "after"))
        .start()
    )
    assert second.awaitTermination(PATIENCE)
    expected = sorted(
        (t, number, v)
        for number in range(3)
        for table in ([rows(number, 0, 30)] if number < 2 else [rows(2, 0, 20), rows(2, 20, 30)])
        for v, t in zip(table["v"].to_pylist(), table["t"].to_pylist(), strict=True)
    )
    assert sorted((row["t"], row["v"]) for row in got) == sorted((t, v) for t, _, v in expected)
    assert [row["t"] for row in got] == [t for t, _, _ in expected]

    with pytest.raises(QueryRefusedError, match="rows of two kinds"):
        tether.stream(early)
    with pytest.raises(BadValueError, match="There is no exchange"):
        tether.subscribe(spark, [str(tmp_path / "nothing")], reader="r", bucket=1)
    with pytest.raises(BadValueError, match="cannot be one of several replicas"):
        tether.subscribe(spark, [inputs], reader="r", bucket=1)


def test_timestamps_and_operators(spark: Any, tmp_path: Path) -> None:
    """Tuple times from timestamps, rows that are timed as they come, and a Tether query between."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    query = tether.ingest(
        source.selectExpr("value % 3 AS k", "timestamp AS at"),
        str(tmp_path / "ticks"),
        checkpoint=str(tmp_path / "taking"),
        time="at",
    )
    try:
        wait_for(lambda: len(entries(tmp_path / "ticks", "stable")) > 3)
    finally:
        query.stop()
    ticks = tether.subscribe(spark, [str(tmp_path / "ticks")], reader="counts", bucket=1.0)
    assert [field.dataType.simpleString() for field in ticks.schema] == ["bigint", "timestamp"]
    log = ExchangeAddress(url=str(tmp_path / "ticks")).open()
    boundary = max(entry.boundary for entry in log.entries(0)) // 1_000_000 * 1_000_000
    complete = sum(
        int((table["_tuple_time"].to_numpy() < boundary).sum())
        for wanted in rows_between(log.entries(0), 0, 2**60, tentative=False)
        for table, _ in [read_file(log.folder, wanted, ["k"])]
    )
    running = (
        tether.stream(ticks)
        .apply(KeyedAggregate(), key="k", parallelism=2)
        .start(
            tether.to_exchange(str(tmp_path / "out")),
            tolerance=tether.MiniBatch(),
            backup=str(tmp_path / "backup"),
            checkpoint=str(tmp_path / "ck"),
        )
    )
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    out = ExchangeAddress(url=str(tmp_path / "out")).open()
    newest: dict[int, int] = {}
    for wanted in rows_between(out.entries(0), 0, 2**62, tentative=False):
        table, _ = read_file(out.folder, wanted, ["k", "count"])
        newest |= dict(zip(table["k"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert sum(newest.values()) == complete > 0
