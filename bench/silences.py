"""One input of three falls silent under a query with state: delays, tentative rows, and the truth after.

DPC 2005, §5.1: three inputs, 4,500 rows a second together. The operator numbers the rows of each key as
they come, so a stable row that is lost, doubled or out of order changes every later row of its key.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from bench.silence_picture import draw
from bench.streams import scratch
from tether.cli.session import open_session
from tether.sources.exchange.files import write_files
from tether.sources.exchange.log import ROW_HASH, TUPLE_TIME, About, ExchangeAddress
from tether.sources.exchange.writer import ExchangeWriter, Rows
from tether.sources.sunion.offsets import end_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from tether.spark.query import Query

INPUTS, KEYS = 3, 101
CHUNK = 0.1
"""Seconds between two entries of an input."""
SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"key","type":"long","nullable":true,"metadata":{}},'
    '{"name":"value","type":"long","nullable":true,"metadata":{}}]}'
)


class Numbered(tether.Operator):
    """Gives each row the number of rows of its key before it, and keeps a table of some size.

    Args:
        entries: Further entries of state, which are there from the first row on.
    """

    output = "value long, key long, n long"

    def __init__(self, entries: int = 0) -> None:
        self._entries = entries

    def setup(self, state: Any) -> None:
        """Make the table, and what only takes room."""
        self.seen = state.table("seen", {"key": pa.int64()}, {"n": "int64"})
        self.ballast = state.vector("ballast", max(1, self._entries))

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        """Number rows, key by key, as they come."""
        keys = batch["key"].to_numpy()
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        counts = np.diff(np.r_[starts, len(keys)])
        unique = ordered[starts]
        before = self.seen.get(pa.record_batch({"key": unique})).columns["n"]
        within = np.arange(len(keys)) - np.repeat(starts, counts)
        numbers = np.empty(len(keys), np.int64)
        numbers[order] = np.repeat(before, counts) + within
        self.seen.add(pa.record_batch({"key": unique}), n=counts)
        out.emit({"value": batch["value"], "key": batch["key"], "n": numbers})


@dataclass
class Sink:
    """Keeps what it is given, when, and of which kind, as an exchange would."""

    checkpoint: str
    given: list[tuple[float, str, NDArray[np.int64]]] = field(default_factory=list)
    epochs: dict[int, Any] = field(default_factory=dict)

    def follow_subscription(self, checkpoint: str) -> None:
        """Be given both kinds."""
        assert checkpoint == self.checkpoint

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Keep the rows of an epoch."""
        table = rows.toArrow()
        kind = end_of(self.checkpoint, epoch).kind
        got = np.column_stack([table[name].to_numpy() for name in ("value", "n")])
        self.given.append((time.time(), kind, got))

    def rows(self, kind: str) -> NDArray[np.int64]:
        """All rows of a kind."""
        found = [got for _, told, got in self.given if told == kind]
        return np.concatenate(found) if found else np.empty((0, 2), np.int64)


class Feed(threading.Thread):
    """Writes all inputs, every tenth of a second; some of them are cut off for a while.

    Args:
        directory: Where the exchanges are made.
        rate: Rows a second, of all inputs together.
    """

    def __init__(self, directory: Path, rate: int) -> None:
        super().__init__(daemon=True, name="bench-feed")
        self.paths = [str(directory / f"x{number}") for number in range(INPUTS)]
        self._writers = []
        for path in self.paths:
            log = ExchangeAddress(url=path).open()
            log.create(About(row_schema=SCHEMA, unit="microseconds"))
            self._writers.append(ExchangeWriter(log, "bench"))
        self._rows = int(rate * CHUNK / INPUTS)
        self._over, self._cut = threading.Event(), threading.Event()
        self._held: list[NDArray[np.int64]] = []
        self.values: list[NDArray[np.int64]] = []
        self.arrived: list[tuple[int, float]] = []
        """Newest tuple time of each chunk, and when it was written."""
        self.cut_between = [0, 0]
        """Tuple times between which the last input was cut off."""

    def silence(self) -> None:
        """Cut the last input off."""
        self.cut_between[0] = int(time.time() * 1e6)
        self._cut.set()

    def heal(self) -> None:
        """Connect it again: what it missed comes first."""
        self.cut_between[1] = int(time.time() * 1e6)
        self._cut.clear()

    def end(self) -> None:
        """Write nothing any more."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Write until the end."""
        before = int(time.time() * 1e6)
        for epoch in itertools.count():
            if self._over.wait(CHUNK) and not self._cut.is_set():
                return
            now = int(time.time() * 1e6)
            for number, writer in enumerate(self._writers):
                times = np.linspace(before, now, self._rows, endpoint=False, dtype=np.int64)
                if number == INPUTS - 1:
                    self._held.append(times)
                    if self._cut.is_set():
                        self.cut_between[0] = min(self.cut_between[0], before)
                        continue
                    times = np.concatenate(self._held)
                    self._held.clear()
                self._add(writer, epoch, number, times, now)
            self.arrived.append((now, time.time()))
            before = now

    def _add(
        self, writer: ExchangeWriter, epoch: int, number: int, times: NDArray[np.int64], end: int
    ) -> None:
        values = times * 4 + number
        keys = values * 2_654_435_761 % KEYS
        batch = pa.record_batch({"key": keys, "value": values, TUPLE_TIME: times, ROW_HASH: keys})
        files = list(
            write_files(
                writer.log.folder, [batch], epoch=epoch, task=0, floor=None, keep_hash=False
            )
        )
        kept = Rows(
            files=tuple(each.file for each in files),
            digest=sum(each.digest for each in files),
            boundary=end,
        )
        self.values.append(values)
        writer.add(epoch, "stable", kept)

    def truth(self, before: int) -> NDArray[np.int64]:
        """All rows of tuple times below one, in the order of SUnion, numbered by key."""
        values = np.concatenate(self.values)
        values = values[values // 4 < before]
        values = values[np.lexsort((values % 4, values // 4))]
        keys = values * 2_654_435_761 % KEYS
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.r_[True, keys[order][1:] != keys[order][:-1]])
        counts = np.diff(np.r_[starts, len(keys)])
        numbers = np.empty(len(keys), np.int64)
        numbers[order] = np.arange(len(keys)) - np.repeat(starts, counts)
        return np.column_stack([values, numbers])


def silenced(
    session: SparkSession,
    policy: tether.Available,
    seconds: float,
    *,
    rate: int = 4_500,
    bucket: float = 0.1,
    entries: int = 0,
    most: int = 20,
    patience: float = 240.0,
    picture: Path | None = None,
) -> dict[str, Any]:
    """One input is cut off for some seconds; what was seen until all is put right.

    Args:
        session: Spark's.
        policy: How it is handled.
        seconds: Length of the failure.
        rate: Rows a second, of all inputs together.
        bucket: Seconds.
        entries: Entries of state beside the counts of keys.
        most: Buckets in one epoch at most.
        patience: Seconds until corrections that do not end are given up.
        picture: Where to draw the run, if anywhere.
    """
    with scratch() as work:
        sink = Sink(str(work / "checkpoint"))
        feed = Feed(work, rate)
        rows = tether.subscribe(
            session,
            feed.paths,
            reader="bench",
            bucket=bucket,
            tolerance=policy,
            partitions=1,
            most_buckets=most,
        )
        query = (
            tether.stream(rows)
            .apply(Numbered(entries), key="key", parallelism=2)
            .start(sink, tolerance=policy, backup=str(work / "backup"), checkpoint=sink.checkpoint)
        )
        try:
            feed.start()
            until(query, lambda: len(sink.given) > 12, 60)
            until(query, lambda: time.time() - sink.given[-1][0] < 0.1, 60)
            warm = time.time()
            feed.silence()
            time.sleep(seconds)
            feed.heal()
            healed = time.time()
            ended = until(query, lambda: _caught_up(query, sink, feed, bucket), patience)
            told = time.time() - healed
            time.sleep(1.0)
            feed.end()
            last = feed.arrived[-1][0]
            end = int(last // (bucket * 1e6) * (bucket * 1e6))
            until(query, lambda: stable_to(sink, bucket) >= end, 60)
            epochs = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
        finally:
            query.stop()
        if picture is not None:
            draw(sink, feed, policy, warm, picture)
        return judged(sink, feed, policy, (warm, healed), end) | {
            "seconds": seconds,
            "rate": rate,
            "entries": entries,
            "reconcile_s": round(told, 2) if ended else None,
            "epoch_ms": float(np.median(epochs)) if epochs else None,
        }


def until(query: Query, what: Any, seconds: float) -> bool:
    """Wait for something; False if it takes longer."""
    deadline = time.monotonic() + seconds
    while not what():
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _caught_up(query: Query, sink: Sink, feed: Feed, bucket: float) -> bool:
    return query.healing() is None and stable_to(sink, bucket) >= feed.cut_between[1]


def stable_to(sink: Sink, bucket: float) -> int:
    """Tuple time to which stable rows have come: the end of the newest bucket, which comes whole."""
    newest = [got[:, 0].max() for _, kind, got in sink.given[-20:] if kind == "stable" and len(got)]
    size = int(bucket * 1e6)
    return (int(max(newest) // 4) // size + 1) * size if newest else 0


def judged(
    sink: Sink, feed: Feed, policy: tether.Available, times: tuple[float, float], end: int
) -> dict[str, Any]:
    """Delay of rows that were there, first answers only; and whether stable rows are the truth's.

    Args:
        sink: What was given.
        feed: What came.
        policy: How it was handled.
        times: When everything was warm, and when the failure was over.
        end: Tuple time below which all inputs have come; what is after it, nobody waits for.
    """
    warm, healed = times
    newest = np.array([at for at, _ in feed.arrived])
    written = np.array([when for _, when in feed.arrived])
    delays, phases = [], {"failure": 0.0, "after": 0.0}
    answered: set[int] = set()
    cut, back = feed.cut_between
    for at, _, got in sink.given:
        values = got[:, 0]
        new = values[(values // 4 >= warm * 1e6) & (values // 4 < end)]
        # What the missing input sent late is no new row: it was not there to be answered.
        late = (new % 4 == INPUTS - 1) & (new // 4 >= cut) & (new // 4 < back)
        fresh = np.array([v for v in new[~late].tolist() if v not in answered], np.int64)
        answered.update(fresh.tolist())
        if not len(fresh):
            continue
        chunk = np.minimum(np.searchsorted(newest, fresh // 4, side="right"), len(newest) - 1)
        worst = float((at - written[chunk]).max())
        delays.append(worst)
        which = "failure" if at < healed else "after"
        phases[which] = max(phases[which], worst)
    stable, early = (
        rows[rows[:, 0] // 4 < end] for rows in (sink.rows("stable"), sink.rows("tentative"))
    )
    truth = feed.truth(end)
    right = {tuple(row) for row in truth.tolist()}
    given = [tuple(row) for row in stable.tolist()]
    return {
        "failure": policy.failure,
        "stabilization": policy.stabilization,
        "reconcile": policy.reconcile,
        "alpha_x": policy.alpha * policy.delay,
        "x": policy.delay,
        "worst_delay_s": round(max(delays, default=0.0), 3),
        "worst_delay_in_failure_s": round(phases["failure"], 3),
        "worst_delay_after_s": round(phases["after"], 3),
        "tentative_rows": len(early),
        "stable_rows": len(stable),
        "duplicates": len(given) - len(set(given)),
        "stable_withdrawn": len(set(given) - right),
        "wrong_after": len(right - set(given)),
        "in_order": bool((np.diff(_in_epoch_order(sink)) >= 0).all()),
    }


def _in_epoch_order(sink: Sink) -> NDArray[np.int64]:
    """Oldest stable tuple time of each epoch, in the order of epochs."""
    return np.array(
        [got[:, 0].min() // 4 for _, kind, got in sink.given if kind == "stable" and len(got)],
        np.int64,
    )


def main() -> None:
    """Single failures, each as one line of JSON; one before them is to warm up."""
    parser = argparse.ArgumentParser(prog="python -m bench.silences", description=main.__doc__)
    parser.add_argument("seconds", type=float, nargs="+", help="lengths of the failures")
    parser.add_argument("--failure", default="process")
    parser.add_argument("--stabilization", default="process")
    parser.add_argument("--reconcile", default="checkpoint")
    parser.add_argument("--alpha", type=float, default=0.75)
    parser.add_argument("--entries", type=int, default=0, help="entries of state")
    parser.add_argument("--rate", type=int, default=4_500, help="rows a second")
    parser.add_argument("--picture", type=Path, help="draw the last run here")
    chosen = parser.parse_args()
    session = open_session("local[2,4]", memory="2g")
    policy = tether.Available(
        delay=3.0,
        alpha=chosen.alpha,
        failure=chosen.failure,
        stabilization=chosen.stabilization,
        reconcile=chosen.reconcile,
    )
    for number, seconds in enumerate([4.0, *chosen.seconds]):
        found = silenced(
            session,
            policy,
            seconds,
            entries=chosen.entries,
            rate=chosen.rate,
            picture=chosen.picture if number == len(chosen.seconds) else None,
        )
        if number:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
