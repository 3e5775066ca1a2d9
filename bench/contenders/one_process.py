"""The limits: the same answer in one process, by the best plain tools, on the same files."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness import Measurement, NotHere
from bench.inputs import Digest, columns_of, count_words, digest_of, digest_sql

if TYPE_CHECKING:
    from pathlib import Path

    from bench.contenders.course import Course


def module(name: str) -> Any:
    """A tool that may not be installed.

    Raises:
        NotHere: It is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotHere(f"{name} is not installed; do: make peers") from None


def whole(course: Course, seconds: float, answer: Any) -> Measurement:
    """A batch over all files at once has no epochs: its time is shared out by rows."""
    part = course.scenario.rows / course.total_rows
    detail = {"whole_seconds": round(seconds, 4), "whole_rows": course.total_rows}
    return course.measurement([1_000 * seconds * part], answer, detail)


class Totals:
    """Totals per key in numpy, kept from epoch to epoch: keys in order, one row of sums each."""

    def __init__(self, columns: int) -> None:
        self.keys: Any = None
        self.sums = np.zeros((0, columns), np.int64)

    def add(self, keys: Any, sums: np.ndarray) -> None:
        """Add an epoch's sums; its keys are all different."""
        if self.keys is None:
            order = np.argsort(keys)
            self.keys, self.sums = keys[order], sums[order]
            return
        place = np.searchsorted(self.keys, keys)
        inside = np.minimum(place, len(self.keys) - 1)
        known = self.keys[inside] == keys
        self.sums[inside[known]] += sums[known]
        if not known.all():
            every = np.concatenate([self.keys, keys[~known]])
            order = np.argsort(every, kind="stable")
            self.keys = every[order]
            self.sums = np.concatenate([self.sums, sums[~known]])[order]


def numpy_epochs(course: Course) -> Measurement:
    """File after file: Arrow folds an epoch, numpy adds it to the totals kept in memory."""
    scenario, names = course.scenario, columns_of(course.scenario)
    totals, times = Totals(len(names)), []
    for path in course.written().files:
        begin = time.perf_counter()
        table = pq.read_table(path)
        if scenario.algorithm == "word-count":
            counted = count_words(table["value"])
            words = np.asarray(counted.field("values"), dtype=np.str_)
            totals.add(words, np.asarray(counted.field("counts"))[:, None])
        else:
            folded = table.group_by("k").aggregate([(name, "sum") for name in names])
            sums = np.stack([np.asarray(folded[f"{name}_sum"]) for name in names], axis=1)
            totals.add(np.asarray(folded["k"]), sums)
        times.append(1_000 * (time.perf_counter() - begin))
    answer = digest_of(pa.array(totals.keys), list(totals.sums.T))
    return course.measurement(times[scenario.uncounted :], answer)


def polars_batch(course: Course) -> Measurement:
    """Polars over all files at once."""
    polars = module("polars")
    source = course.written().source
    begin = time.perf_counter()
    rows = polars.scan_parquet(str(source / "*.parquet"))
    if course.scenario.algorithm == "word-count":
        words = rows.select(polars.col("value").str.split(" ").alias("key")).explode("key")
        lazy = words.group_by("key").agg(polars.len().alias("n"))
    else:
        lazy = rows.group_by(polars.col("k").alias("key")).agg(
            [polars.col(name).sum() for name in columns_of(course.scenario)]
        )
    found = lazy.collect(engine="streaming")
    seconds = time.perf_counter() - begin
    arrow = found.to_arrow()
    totals = [arrow[name] for name in arrow.column_names if name != "key"]
    return whole(course, seconds, digest_of(arrow["key"], totals))


def duckdb_batch(course: Course) -> Measurement:
    """DuckDB over all files at once."""
    scenario = course.scenario
    source = f"read_parquet('{course.written().source}/*.parquet')"
    if scenario.algorithm == "word-count":
        words = f"SELECT unnest(string_split(value, ' ')) AS k FROM {source}"
        query, names = f"SELECT k, COUNT(*) AS n FROM ({words}) GROUP BY k", ["n"]
    else:
        names = columns_of(scenario)
        sums = ", ".join(f"SUM({name})::BIGINT AS {name}" for name in names)
        query = f"SELECT k, {sums} FROM {source} GROUP BY k"
    digest = ", ".join(digest_sql(scenario, "k", names))
    seconds, ((*answer,),) = duckdb_timed(course, query, f"SELECT {digest} FROM answer")
    return whole(course, seconds, Digest(*map(int, answer)))


def duckdb_timed(
    course: Course, query: str, shown: str = "FROM answer"
) -> tuple[float, list[tuple[Any, ...]]]:
    """Seconds of a query by DuckDB, with as many threads as there are slots; and what it gave.

    Args:
        course: What it runs over.
        query: What is timed; its rows become the table ``answer``.
        shown: A query over that table, not timed.
    """
    duckdb = module("duckdb")
    with duckdb.connect(config={"threads": course.scenario.slots}) as connection:
        begin = time.perf_counter()
        connection.execute(f"CREATE TABLE answer AS {query}")
        seconds = time.perf_counter() - begin
        return seconds, connection.execute(shown).fetchall()


def heavy_pairs(source: Path, threshold: float, uncounted: int) -> tuple[list[float], set[Any]]:
    """Heavy hitters exactly, in one process: milliseconds of each counted epoch, and the last answer.

    Every epoch gives its answer, as the stream does: pairs whose bytes so far reach the threshold.
    """
    totals, times, heavy = Totals(1), [], set()
    for path in sorted(source.glob("*.parquet")):
        begin = time.perf_counter()
        table = pq.read_table(path, columns=["src", "dst", "bytes"])
        # Addresses are 32 bits each, so a pair is one 64-bit number.
        pair = pc.bit_wise_or(pc.shift_left(table["src"], 32), table["dst"])
        folded = pa.table({"pair": pair, "bytes": table["bytes"]}).group_by("pair")
        sums = folded.aggregate([("bytes", "sum")])
        totals.add(np.asarray(sums["pair"]), np.asarray(sums["bytes_sum"])[:, None])
        heavy = totals.keys[totals.sums[:, 0] >= threshold]
        times.append(1_000 * (time.perf_counter() - begin))
    pairs = {(int(pair) >> 32 & 0xFFFFFFFF, int(pair) & 0xFFFFFFFF) for pair in heavy}
    return times[uncounted:], pairs
