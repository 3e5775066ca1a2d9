"""Checkpoint files whose round trips overlap: the same order, the same errors, the same answers."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.sql.far_job import SCHEMA

from tether.sql import Bounded, overlapped_checkpoints
from tether.sql.checkpoints import (
    MANAGER_CLASS,
    OVERLAPPED,
    overlapped_where_far,
    settle_checkpoints,
)
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.processes import kill_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LONGEST_SECONDS = 300
ROWS = 100


def _tables(epochs: int, seed: int = 1) -> list[pa.Table]:
    draw = np.random.default_rng(seed)
    return [
        pa.table({"k": draw.integers(0, 10, ROWS), "v": draw.integers(0, 100, ROWS)})
        for _ in range(epochs)
    ]


def _entries(folder: Path, log: str) -> dict[int, Path]:
    """A log's entries by number; a source's compact ones count as any."""
    found = (path for path in (folder / "checkpoint" / log).glob("[0-9]*"))
    return {int(path.name.removesuffix(".compact")): path for path in found}


class Sink:
    """Counts the rows of each epoch, however often it is run."""

    def __init__(self, spark: SparkSession, folder: Path, scheme: str = "") -> None:
        self.spark, self.folder, self.scheme = spark, folder, scheme
        self.rows: dict[int, int] = {}
        self.runs: list[int] = []

    def take(self, rows: DataFrame, epoch: int) -> None:
        self.runs.append(epoch)
        self.rows[epoch] = rows.count()

    def start(self) -> StreamingQuery:
        stream = read_epochs(self.spark, self.folder / "in", SCHEMA)
        writer = stream.writeStream.foreachBatch(self.take)
        with overlapped_checkpoints(self.spark):
            place = f"{self.scheme}{self.folder / 'checkpoint'}"
            return writer.option("checkpointLocation", place).start()

    def idle(self) -> StreamingQuery:
        """A query that has read two epochs, all of it durable, and waits for more."""
        write_epochs(self.folder / "in", _tables(2))
        query = self.start()
        query.processAllAvailable()
        settle_checkpoints()
        return query

    def run_through(self) -> None:
        query = self.start()
        query.processAllAvailable()
        query.stop()


def test_entries_appear_in_the_order_of_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "in", _tables(8))
    sink = Sink(spark, tmp_path)
    sink.run_through()
    settle_checkpoints()
    assert spark.conf.get(MANAGER_CLASS) != OVERLAPPED  # only for what was started in the block
    assert sink.rows == dict.fromkeys(range(8), ROWS)
    found = {log: _entries(tmp_path, log) for log in ("sources/0", "offsets", "commits")}
    assert set(found["offsets"]) == set(found["commits"]) == set(range(8))
    # Renaming a file changes its ctime: when it appeared. Compacted entries appear in the same order.
    times = [
        found[log][number].stat().st_ctime_ns
        for number in range(8)
        for log in ("sources/0", "offsets", "commits")
        if number in found[log]
    ]
    assert times == sorted(times)
    assert not list((tmp_path / "checkpoint").rglob("*.tmp"))


def test_a_restart_goes_on_and_runs_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "in", _tables(3))
    sink = Sink(spark, tmp_path)
    sink.run_through()
    write_epochs(tmp_path / "in", _tables(2, seed=2), first=3)
    sink.run_through()  # reads what the first one may still have been sending
    assert sink.runs == list(range(5))


def test_any_thread_may_start_a_query(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "in", _tables(2))
    sink = Sink(spark, tmp_path)
    thread = threading.Thread(target=sink.run_through)
    thread.start()
    thread.join(LONGEST_SECONDS)
    assert sink.runs == [0, 1]


@pytest.mark.parametrize("scheme", ["", "slow://"])  # there, renaming overwrites what was there
def test_an_entry_of_another_query_is_not_overwritten(
    slow_spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    sink = Sink(slow_spark, tmp_path, scheme)
    query = sink.idle()
    foreign = tmp_path / "checkpoint" / "offsets" / "2"
    foreign.write_text("of another query")
    write_epochs(tmp_path / "in", _tables(1, seed=2), first=2)
    with pytest.raises(StreamingQueryException, match=r"(?i)concurrent"):
        query.processAllAvailable()
    assert foreign.read_text() == "of another query"
    assert sink.runs == [0, 1]


def test_without_a_commit_no_later_epoch_begins(spark: SparkSession, tmp_path: Path) -> None:
    sink = Sink(spark, tmp_path)
    query = sink.idle()
    commits, aside = tmp_path / "checkpoint" / "commits", tmp_path / "commits"
    commits.rename(aside)
    commits.write_text("no folder: nothing can be written here")
    write_epochs(tmp_path / "in", _tables(2, seed=2), first=2)
    with pytest.raises(StreamingQueryException):
        query.processAllAvailable()
    assert sink.runs == [0, 1, 2]
    assert 3 not in _entries(tmp_path, "offsets")

    commits.unlink()
    aside.rename(commits)
    sink.run_through()
    assert sink.runs == [0, 1, 2, 2, 3]  # as after a crash right before the commit
    assert sink.rows == dict.fromkeys(range(4), ROWS)


def test_operators_choose_it_for_far_checkpoints_alone(spark: SparkSession) -> None:
    def chosen(checkpoint: str) -> str | None:
        with overlapped_where_far(spark, checkpoint):
            return spark.conf.get(MANAGER_CLASS, None)

    before = spark.conf.get(MANAGER_CLASS, None)
    assert chosen("s3a://bucket/checkpoint") == OVERLAPPED
    assert chosen("/checkpoint") == before
    with Bounded(spark, {MANAGER_CLASS: "of.another.Manager"}):
        assert chosen("s3a://bucket/checkpoint") == "of.another.Manager"
    assert spark.conf.get(MANAGER_CLASS, None) == before


@pytest.mark.chaos
@pytest.mark.long
def test_a_killed_driver_leaves_no_gap(tmp_path: Path) -> None:
    """Our operators, with a far checkpoint; killed at random moments, exact in the end."""
    seed = int(os.environ.get("TETHER_SEED", "1"))
    draw = random.Random(seed)
    tables = _tables(12, seed)
    write_epochs(tmp_path / "in", tables)
    for commits in sorted(draw.sample(range(2, 11), 3)):
        job = _start(tmp_path)
        deadline = time.monotonic() + LONGEST_SECONDS
        while len(_entries(tmp_path, "commits")) < commits:
            assert job.poll() is None, (tmp_path / "log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.4))
        kill_all(job.pid)
        job.communicate()
        offsets, committed = _entries(tmp_path, "offsets"), _entries(tmp_path, "commits")
        assert set(range(max(offsets))) <= set(committed), f"seed {seed}"
        assert max(committed) in offsets
    job = _start(tmp_path)
    said, _ = job.communicate(timeout=LONGEST_SECONDS)
    assert job.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    whole = pa.concat_tables(tables).group_by("k").aggregate([("v", "sum")]).to_pydict()
    truth = {str(key): total for key, total in zip(whole["k"], whole["v_sum"], strict=True)}
    assert json.loads(said.splitlines()[-1]) == truth, f"seed {seed}"
    shutil.rmtree(tmp_path / "checkpoint")


def _start(folder: Path) -> subprocess.Popen[str]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.sql.far_job", str(folder)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
