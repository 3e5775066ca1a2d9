"""Rows through SUnion against a plain union of the same files (DPC 2005, §5: what serialising costs)."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import tether
from bench.harness import Measurement, say
from bench.streams import scratch
from tether.cli.session import open_session
from tether.sources.exchange.files import write_files
from tether.sources.exchange.log import ROW_HASH, TUPLE_TIME, About, ExchangeAddress
from tether.sources.exchange.writer import ExchangeWriter, Rows

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

INPUTS = 3
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}}
            for name in ("key", "value")
        ],
    }
)
UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Java options: Arrow reads values without asking each time whether they are there."""


def writer_of(path: Path, **about: Any) -> ExchangeWriter:
    log = ExchangeAddress(url=str(path)).open()
    log.create(About(row_schema=SCHEMA, unit="microseconds", **about))
    return ExchangeWriter(log, "bench")


def add(
    writer: ExchangeWriter, epoch: int, times: np.ndarray, boundary: int, *, hashed: bool
) -> None:
    keys = times % 1_009
    batch = pa.record_batch(
        {"key": keys, "value": times, TUPLE_TIME: times, ROW_HASH: keys * 7_919 + times}
    )
    found = list(
        write_files(writer.log.folder, [batch], epoch=epoch, task=0, floor=None, keep_hash=hashed)
    )
    kept = Rows(
        files=tuple(each.file for each in found),
        digest=sum(each.digest for each in found),
        boundary=boundary,
    )
    writer.add(epoch, "stable", kept)


def written_inputs(directory: Path, rows: int, entries: int, seed: int) -> Path:
    for number in range(INPUTS):
        _write(directory / f"x{number}", number, rows, entries, seed)
    return directory


def _write(path: Path, number: int, rows: int, entries: int, seed: int) -> None:
    """One bucket of a million microseconds an entry, times spread over it."""
    random = np.random.default_rng(seed + number)
    writer = writer_of(path)
    for epoch in range(entries):
        times = epoch * 1_000_000 + random.integers(0, 1_000_000, rows)
        add(writer, epoch, times, (epoch + 1) * 1_000_000, hashed=False)


def through_sunion(session: SparkSession, directory: Path, rows: int) -> Measurement:
    inputs = [str(directory / f"x{number}") for number in range(INPUTS)]
    return _timed(
        tether.subscribe(session, inputs, reader="bench", bucket=1.0, most_buckets=1), rows
    )


def through_union(session: SparkSession, directory: Path, rows: int) -> Measurement:
    reader = session.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1)
    streams = [reader.parquet(str(directory / f"x{number}" / "data")) for number in range(INPUTS)]
    united = streams[0]
    for each in streams[1:]:
        united = united.union(each)
    return _timed(united, rows)


def _timed(stream: DataFrame, rows: int) -> Measurement:
    """An aggregate over all rows and columns of every epoch, so that all of it is really read."""
    found = []

    def each(batch: DataFrame, epoch: int) -> None:
        del epoch
        found.append(batch.selectExpr("count(*)", "sum(value % 1000)", "sum(key)").collect()[0])

    with scratch() as work:
        writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(work))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        times = [
            report["durationMs"]["triggerExecution"]
            for report in query.recentProgress
            if report["numInputRows"]
        ]
    counted = sum(row[0] for row in found)
    detail = {"sum": sum(row[1] for row in found if row[1] is not None)}
    return Measurement(
        times[1:], answer_checked=counted == rows, detail=detail, rows=rows // len(times)
    )


def main() -> None:
    """Rounds in turn, after one that does not count; each as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.sunion", description=main.__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of an input in an epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--unchecked", action="store_true", help=f"with the Java options {UNCHECKED}"
    )
    chosen = parser.parse_args()
    conf = {"spark.driver.extraJavaOptions": UNCHECKED} if chosen.unchecked else {}
    session = open_session("local[2,4]", memory="4g", conf=conf)
    with scratch() as work:
        say("sunion: writing inputs")
        written = written_inputs(work, chosen.rows, chosen.epochs, chosen.seed)
        files = INPUTS * chosen.rows * chosen.epochs
        for number in range(chosen.rounds + 1):
            ours, plain = (
                float(np.median(measured(session, written, files).epoch_ms))
                for measured in (through_sunion, through_union)
            )
            line = {"sunion_ms": ours, "union_ms": plain, "ratio": round(plain / ours, 3)}
            if number:
                print(json.dumps(line | {"unchecked": chosen.unchecked}), flush=True)


if __name__ == "__main__":
    main()
