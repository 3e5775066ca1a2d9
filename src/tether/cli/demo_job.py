"""The demo's Spark job, a process of its own so that it can be killed whole.

Prints one JSON object a line: ``{"event": "progress" | "story" | "done" | "cost", …}``.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

import tether
from tether.algorithms.word_count import WordCount
from tether.cli.demo_cost import tell_costs
from tether.cli.demo_stream import SLOTS, tell, words
from tether.cli.session import open_session
from tether.policies.parse import parse_policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tether.spark.query import Query


def start(session: SparkSession, source: str, policy: str, work: Path) -> Query:
    """The main job: word counts whose state is lost with the process, unless it is backed up."""
    return (
        tether.stream(words(session, source))
        .apply(WordCount(), key="word", parallelism=SLOTS)
        .start(
            tolerance=parse_policy(policy),
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_scope="executor",
        )
    )


def follow(query: Query) -> None:
    """Tell the parent how the stream goes, until all files are in.

    That may be in fewer epochs than there are files: where a driver dies after it has noted a file and
    before it has planned the epoch, Spark puts that file and the next one into one epoch.
    """
    reading = threading.Thread(target=_read_all, args=(query,), daemon=True)
    reading.start()
    told, over = 0, False
    while not over:
        reading.join(0.25)
        over = not reading.is_alive()
        slots = query.slots()
        done = min((slot["epoch"] for slot in slots), default=-1) + 1
        bound = query.bound()
        tell(
            "progress",
            epochs=done,
            rows=query.totals()["rows"],
            backups=query.totals()["backups"],
            backup_bytes=query.totals()["backup_bytes"],
            divergence=max((slot["divergence"] for slot in slots), default=0.0),
            theta=min((slot["theta"] for slot in slots), default=0.0),
            spent=bound.spent,
            worst=bound.worst_now,
            promised=bound.promised,
        )
        story = query.story()
        for event in story[told:]:
            if event.what in ("recovery", "rollback", "started"):
                tell("story", **msgspec.to_builtins(event))
        told = len(story)
    query.processAllAvailable()  # raises what has ended the query, if anything has


def _read_all(query: Query) -> None:
    with contextlib.suppress(Exception):  # it is raised to the main thread, which asks once more
        query.processAllAvailable()


def main() -> None:
    """Arguments: source directory, policy, work directory, "costs" or nothing."""
    source, policy, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    session = open_session(f"local[{SLOTS},8]", app="tether demo")
    query = start(session, source, policy, work)
    follow(query)
    pq.write_table(query.table("totals").toArrow(), work / "answer.parquet")
    bound = query.bound()
    query.stop()
    tell("done", spent=bound.spent, promised=bound.promised)
    if sys.argv[4] == "costs":
        tell_costs(session, Path(source), policy)


if __name__ == "__main__":
    main()
