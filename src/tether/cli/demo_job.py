"""One side of the demo: the count under Tether, or on Spark's own state store.

A process of its own, so that it can be killed whole; started again, it goes on from its checkpoint.
Prints one JSON object a line: ``{"event": "progress" | "story" | "counted" | "done", …}``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

import tether
from tether.cli.demo_stream import CountedWords, Course, open_far, words
from tether.cli.demo_talk import SLOTS, Side, tell
from tether.core.errors import TetherError
from tether.testing.slow_store import requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tether.spark.query import Query

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOOK_SECONDS = 0.2
HEALING_SECONDS = 60.0
"""Longer than that nobody waits for a twin."""


def start_tether(session: SparkSession, side: Side) -> Query:
    """Counts whose state is lost with the process, unless it is backed up; all of it far away."""
    return (
        tether.stream(words(session, Path(side.source)))
        .apply(CountedWords(), key="word", parallelism=SLOTS)
        .start(
            tolerance=tether.Approximate(side.bound, heal=tether.Barrier(side.snapshot_every)),
            backup=f"slow://{side.work}/backup",
            checkpoint=f"slow://{side.work}/checkpoint",
            arena_scope="executor",
        )
    )


def follow(query: Query, files: int) -> None:
    """Tell the parent how the stream goes, until all files are in; a twin may still be at work then.

    That may be in fewer epochs than there are files: where a driver dies after it has noted a file and
    before it has planned the epoch, Spark puts that file and the next one into one epoch.
    """
    course, told = Course(), 0
    while course.files < files:
        time.sleep(LOOK_SECONDS)
        if (failed := query.exception()) is not None:
            raise failed
        ends, last = course.look(query), query.feed.history.newest
        tell(
            "progress",
            files=course.files,
            ends=ends,
            fullness=last.fullness if last is not None else 0.0,
            spent=last.spent if last is not None else 0.0,
            healing=last is not None and last.state == "healing",
        )
        told = _tell_story(query, told)


def _tell_story(query: Query, told: int) -> int:
    story = query.story()
    for event in story[told:]:
        if event.what in ("recovery", "rollback", "taken-over", "no-twin", "twin-lost"):
            tell("story", **msgspec.to_builtins(event))
    return len(story)


def run_tether(session: SparkSession, side: Side) -> None:
    """The stream, the answer with its bound, and the answer after healing."""
    work, page = Path(side.work), None
    if side.port is not None:
        from tether.ui import serve  # noqa: PLC0415 - an extra

        page = serve(port=side.port, quiet=True)
    query = start_tether(session, side)
    follow(query, side.epochs)
    told = len(query.story())
    # Before the answer: if a twin takes over in between, the answer is better than is told here.
    bound, healing = query.bound(), query.healing() is not None
    pq.write_table(query.table("totals").toArrow(), work / "answer.parquet")
    tell(
        "counted",
        spent=bound.spent,
        promised=bound.promised,
        theta=min(slot["theta"] for slot in query.slots()),
        healing=healing,
        **requests(work / "requests")._asdict(),
    )
    deadline = time.monotonic() + HEALING_SECONDS
    while (left := query.healing()) is not None and time.monotonic() < deadline:
        told = _tell_story(query, told)
        tell("healing", behind=left["epochs_behind"], seconds_left=left["seconds_left"])
        time.sleep(LOOK_SECONDS)
    at, after = time.time(), query.bound()
    _tell_story(query, told)
    pq.write_table(query.table("totals").toArrow(), work / "healed.parquet")
    tell("healed", spent=after.spent, whole=query.healing() is None, at=at)
    query.stop()
    session.stop()
    tell("done")
    if page is not None:
        sys.stdin.read()  # the page stays as long as the demo does
        page.stop()


def run_spark(session: SparkSession, side: Side) -> None:
    """The same count in Spark's own words, on RocksDB with its changelog."""
    work = Path(side.work)
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
    )
    checkpoint = f"slow://{side.work}/checkpoint"
    counts = words(session, Path(side.source)).groupBy("word").count()
    writer = counts.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    course = Course()
    while course.files < side.epochs:
        time.sleep(LOOK_SECONDS)
        if (failed := query.exception()) is not None:
            raise TetherError("Spark's own query has failed.", why=str(failed))
        ends = course.look(query)
        tell("progress", files=course.files, ends=ends)
    query.stop()
    tell("counted", **requests(work / "requests")._asdict())
    pq.write_table(_stored(session, checkpoint), work / "answer.parquet")
    session.stop()
    tell("done")


def _stored(session: SparkSession, checkpoint: str) -> Any:
    """What the state store holds."""
    state = session.read.format("statestore").load(checkpoint)
    return state.selectExpr("key.word AS word", "value.count AS count").toArrow()


def main() -> None:
    """Argument: a ``Side`` as JSON."""
    side = msgspec.json.decode(sys.argv[1], type=Side)
    session = open_far(Path(side.work), side.latency, side.epochs)
    tell("up")
    (run_tether if side.name == "tether" else run_spark)(session, side)


if __name__ == "__main__":
    main()
