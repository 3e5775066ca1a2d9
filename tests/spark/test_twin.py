"""The twin on Spark itself: tentative rows, their corrections, and the same epochs from real sources."""

from __future__ import annotations

import json
import time
from collections import Counter

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.chaos.faults import release
from tether.cli.app import app
from tether.spark.running.twin import Twin
from tether.spark.tasks.cluster import SparkCluster
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.injector import Injector

from .counting import SCHEMA, skewed_keys


def truth_by_epoch(tables):
    """What a run without a loss gives: for each epoch the counts of its keys."""
    counts: Counter[int] = Counter()
    for epoch, table in enumerate(tables):
        keys = table["k"].to_pylist()
        counts.update(keys)
        yield from ((epoch, key, counts[key]) for key in set(keys))


def start(rows, work, sink, injector, **options):
    return (
        tether.stream(rows)
        .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2)
        .start(
            sink,
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_dir=str(work / "arena"),
            faults=injector.faults,
            **options,
        )
    )


def wait_for(condition, seconds=300.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run_inspect(backup, *options):
    ran = CliRunner().invoke(app, ["inspect", str(backup), *options])
    assert ran.exit_code == 0, ran.output
    return ran.output


def inspected(backup, until):
    """What ``tether inspect`` says of the feed, once that has come so far."""
    found = {}

    def come():
        found["feed"] = json.loads(run_inspect(backup, "--json").splitlines()[-1])["feed"]
        return bool(found["feed"]) and until(found["feed"])

    wait_for(come)
    return found["feed"]


def what_happened(query):
    told = ("tentative", "twin", "twin-lost", "no-twin", "rewound", "taken-over")
    return [event.what for event in query.story() if event.what in told]


def count_placings(monkeypatch):
    """How often each cluster's slots were given places, and the streams of the twin's that began."""
    placings, streams = Counter(), []
    place, run = SparkCluster._place, Twin._run_stream

    def counted(self, stay_as=None):
        placings[id(self)] += 1
        return place(self, stay_as)

    monkeypatch.setattr(SparkCluster, "_place", counted)
    monkeypatch.setattr(Twin, "_run_stream", lambda self: (streams.append(self), run(self))[1])
    return placings, streams


def test_tentative_rows_are_given_at_once_and_corrected_by_the_twin(spark, tmp_path, monkeypatch):
    placings, streams = count_placings(monkeypatch)
    tables = skewed_keys(11, 60, 12, seed=5)
    write_epochs(tmp_path / "in", tables)
    injector = Injector(tmp_path / "strikes")
    injector.at("before-attach", "forget", slot=1, epoch=8)
    held = injector.at("during-recovery", "hold", slot=0, epoch=4)  # the twin's: main's is there
    feed = str(tmp_path / "changes")
    policy = tether.Barrier(4, mode="sync", meanwhile="stale")
    query = start(
        read_epochs(spark, tmp_path / "in", SCHEMA),
        tmp_path,
        tether.to_changes(feed, key="k"),
        injector,
        tolerance=policy,
        trigger={"availableNow": True},
    )
    wait_for(lambda: (query.healing() or {}).get("tentative_epochs") == 3)
    told = query.healing()
    last = len(tables) - 1
    report = inspected(tmp_path / "backup", lambda feed: feed["last_epoch"] == last)["healing"]
    text = run_inspect(tmp_path / "backup")
    release(held)
    query.awaitTermination()
    assert query.exception() is None
    assert what_happened(query) == ["tentative", "twin", "taken-over"]
    # Placing is a job of Spark's: once for each stream, and once at the take-over, not in each epoch.
    assert max(placings.values()) <= len(streams) + 1
    truth = sorted(truth_by_epoch(tables))
    stable = tether.read_changes(spark, feed, "stable").collect()
    assert sorted((row["_epoch"], row["k"], row["count"]) for row in stable) == truth
    newest = tether.read_changes(spark, feed).collect()
    assert sorted((row["_epoch"], row["k"], row["count"]) for row in newest) == truth
    history = [row.asDict() for row in tether.read_changes(spark, feed, "history").collect()]
    guesses = [row for row in history if row["_stability"] == "tentative"]
    inserted = [row for row in guesses if row["_change_type"] == "insert"]
    assert inserted  # it answered before it knew
    assert told["tentative_rows"] == len(inserted)
    assert 0 < told["oldest_tentative_seconds"] < 3600
    assert (report["state"], report["since_epoch"], report["fidelity"]) == ("healing", 8, 0.5)
    assert (report["since"], report["tentative_rows"]) == (told["since"], len(inserted))
    assert report["epochs_behind"] == told["epochs_behind"] == last - 4
    assert report["oldest_tentative_seconds"] > 0
    assert "healing since epoch 8" in text
    assert f"{len(inserted)} tentative rows are not corrected yet" in text
    assert inspected(tmp_path / "backup", lambda feed: feed["state"] == "stopped")
    assert {row["_epoch"] for row in inserted} <= set(range(8, 11))
    assert {row["_fidelity"] for row in inserted} == {0.5}
    # Each was taken back with just the values that had been given, and wrong ones were among them.
    back = [row for row in history if row["_change_type"] in ("update_preimage", "delete")]
    shown = lambda rows: sorted((r["_epoch"], r["k"], r["count"]) for r in rows)  # noqa: E731
    assert shown(back) == shown(inserted)
    assert set(shown(inserted)) - set(truth)
    # Rows of epochs before the loss were stable when they were given, and stand as they were.
    assert all(row["_change_type"] == "insert" for row in history if row["_epoch"] < 8)
    assert all(row["_commit_version"] >= row["_epoch"] for row in history)


@pytest.mark.long
def test_a_source_without_a_limit_gives_the_twin_the_same_epochs(spark, tmp_path):
    tables = [pa.table({"k": [n % 3, n % 5, 7]}) for n in range(8)]
    injector = Injector(tmp_path / "strikes")
    injector.at("before-attach", "forget", slot=0, epoch=6)
    memory = tether.to_memory()
    write_epochs(tmp_path / "in", tables[:1])
    rows = spark.readStream.schema(SCHEMA).option("pathGlobFilter", "*.parquet")
    rows = rows.parquet(str(tmp_path / "in"))
    policy = tether.Barrier(40, mode="sync", meanwhile="skip", strategy="process")
    query = start(rows, tmp_path, memory, injector, tolerance=policy)
    for number in range(1, len(tables) + 1):
        query.processAllAvailable()
        write_epochs(tmp_path / "in", tables[number : number + 1], first=number)
    query.processAllAvailable()
    assert what_happened(query) == ["tentative", "twin", "taken-over"]
    query.stop()
    stable = sorted((row["_epoch"], row["k"], row["count"]) for row in memory.rows("stable"))
    assert stable == sorted(truth_by_epoch(tables))
