"""groupBy and agg, spelled as in Spark, give what Spark gives."""

from __future__ import annotations

import datetime as dt
import math
import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tether
from tether.core.errors import BadValueError, QueryRefusedError
from tether.testing.epochs import read_epochs, write_epochs

SCHEMA = "case int, page string, bytes long, x double, day date, ts timestamp, user string"
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def random_epoch(seed: int, cases: int = 40) -> pa.Table:
    """Rows of many small cases at once: a run of Spark costs more than any of them."""
    chance = random.Random(seed)
    odd = [math.nan, math.inf, -math.inf]

    def number(case: int) -> float | None:
        kinds = [None, chance.uniform(-9, 9), chance.uniform(-9, 9)]
        return chance.choice([*kinds, *(odd if case % 4 == 0 else [])])

    rows = [
        {
            "case": case,
            "page": chance.choice(["a", "b", None]),
            "bytes": chance.choice([None, chance.randint(-(2**40), 2**40)]),
            "x": number(case),
            "day": chance.choice([None, (EPOCH + dt.timedelta(chance.randint(-900, 900))).date()]),
            "ts": EPOCH + dt.timedelta(microseconds=chance.randint(-(10**12), 10**12)),
            "user": chance.choice([None, *(f"user {n}" for n in range(case + 1))]),
        }
        for case in range(cases)
        for _ in range(chance.randint(0, 6))
    ]
    schema = pa.schema(
        [
            ("case", pa.int32()),
            ("page", pa.string()),
            ("bytes", pa.int64()),
            ("x", pa.float64()),
            ("day", pa.date32()),
            ("ts", pa.timestamp("us", "UTC")),
            ("user", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def alike(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list) and one and hasattr(one[0], "item"):
        # Spark's order of values that came equally often is by chance, and so is the last of them.
        return [row["count"] for row in one] == [row["count"] for row in other]
    if isinstance(one, list) and isinstance(other, list):  # cut to 31 bits
        pairs = zip(one, other, strict=True)
        return all(alike(float(mine), float(theirs)) for mine, theirs in pairs)
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
    return one == other


def test_random_cases_equal_sparks_own_answers(spark, tmp_path):
    tables = [random_epoch(seed) for seed in range(3)]
    write_epochs(tmp_path / "in", tables)
    aggregates = [
        F.count("*"),
        F.count("bytes").alias("known"),
        F.sum("bytes"),
        F.sum("x"),
        F.min("x"),
        F.max("x"),
        F.min("bytes"),
        F.max(F.col("bytes") * 2),
        F.max("ts"),
        F.min("day"),
        F.avg("x"),
        F.mean("bytes"),
        F.var_samp("x"),
        F.stddev_pop("x"),
        F.approx_count_distinct("user"),
    ]
    found, complete = {}, {}
    stream = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    grouped = stream.groupBy("case", "page").agg(*aggregates)
    query = (
        grouped.outputMode("update")
        .parallelism(2)
        .queryName("everyday")
        .option("checkpointLocation", tmp_path / "checkpoint")
        .option("backupLocation", tmp_path / "backup")
        .trigger(availableNow=True)
        .start(
            lambda df, _: found.update({tuple(row)[:2]: tuple(row)[2:] for row in df.collect()}),
            tolerance=tether.Approximate(1e6),
        )
    )
    query.awaitTermination()
    static = spark.read.schema(SCHEMA).parquet(str(tmp_path / "in"))
    answer = static.groupBy("case", "page").agg(*aggregates, F.countDistinct("user").alias("exact"))
    names = answer.columns[2:-1]
    for row in answer.collect():
        ours, theirs = found.pop((row[0], row[1])), tuple(row)[2:]
        for name, one, other in zip(names[:-1], ours[:-1], theirs[:-2], strict=True):
            assert alike(one, other), (row[0], row[1], name, one, other)
        assert abs(ours[-1] - theirs[-1]) <= max(1, 0.15 * theirs[-1])
    assert not found
    assert query.bound().spent == 0
    # The batch form gives the same, with Spark's names and types.
    rows = tether.stream(static).groupBy("case").count().to_df()
    plain = static.groupBy("case").count()
    assert rows.schema.simpleString() == plain.schema.simpleString()
    complete = {row["case"]: row["count"] for row in rows.collect()}
    assert complete == {r["case"]: r["count"] for r in static.groupBy("case").count().collect()}


@pytest.mark.long
def test_quantiles_and_the_most_frequent_are_sparks(spark, tmp_path):
    write_epochs(tmp_path / "in", [random_epoch(seed) for seed in range(3)])
    exact = 2**31 - 1
    aggregates = [
        F.percentile_approx("bytes", [0.0, 0.3, 1.0], exact),
        # Where NaN stands among the values is by chance in Spark.
        F.approx_percentile(F.nanvl("x", F.lit(None)), 0.5, exact),
        F.call_function("approx_top_k", "day", F.lit(2)),
    ]
    found = {}
    stream = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    stream.groupBy("case", "page").agg(*aggregates).outputMode("update").parallelism(2).trigger(
        availableNow=True
    ).start(
        lambda df, _: found.update({tuple(row)[:2]: tuple(row)[2:] for row in df.collect()})
    ).awaitTermination()
    static = spark.read.schema(SCHEMA).parquet(str(tmp_path / "in"))
    for row in static.groupBy("case", "page").agg(*aggregates).collect():
        for one, other in zip(found.pop((row[0], row[1])), tuple(row)[2:], strict=True):
            assert alike(one, other), (row[0], row[1], one, other)
    assert not found


@pytest.mark.parametrize(
    "sizes",
    [
        ("3 minutes", "1 minute"),
        pytest.param(("1 minute",), marks=pytest.mark.long),
        pytest.param(("100 seconds", "40 seconds"), marks=pytest.mark.long),
    ],
)
def test_windows_and_watermarks_are_sparks(spark, tmp_path, sizes):
    chance = random.Random(5)
    clock = [0, 40, 35, 130, 100, 260, 600]
    tables = [
        pa.table(
            {
                "ts": pa.array(
                    [
                        EPOCH + dt.timedelta(seconds=now + chance.randint(-60, 60))
                        for _ in range(12)
                    ],
                    pa.timestamp("us", "UTC"),
                ),
                "page": [chance.choice("ab") for _ in range(12)],
                "bytes": [chance.randint(0, 9) for _ in range(12)],
            }
        )
        for now in clock
    ]
    write_epochs(tmp_path / "in", tables)
    rows = read_epochs(spark, tmp_path / "in", "ts timestamp, page string, bytes long")
    rows = rows.withWatermark("ts", "30 seconds")
    by = F.window("ts", *sizes), "page"
    aggregates = [
        F.count("*").alias("n"),
        F.sum("bytes"),
        F.approx_count_distinct("bytes"),
        F.percentile_approx("bytes", 0.5),
    ]
    ours, theirs = [], []
    tether.stream(rows).groupBy(*by).agg(*aggregates).parallelism(2).trigger(
        availableNow=True
    ).start(lambda df, _: ours.extend(tuple(row)[:4] for row in df.collect())).awaitTermination()
    before = spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        plain = rows.groupBy(*by).agg(*aggregates).writeStream.outputMode("append")
        plain.trigger(availableNow=True).foreachBatch(
            lambda df, _: theirs.extend(tuple(row)[:4] for row in df.collect())
        ).start().awaitTermination()
    finally:
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", before)
    assert sorted(ours) == sorted(theirs)
    assert len({row[0].end for row in ours}) > 3


def test_windows_that_overlap_are_sparks(spark, tmp_path):
    write_epochs(tmp_path / "in", [random_epoch(seed, cases=12) for seed in range(3)])
    # The longer one is no whole number of slides.
    by = F.window("ts", "100 hours", "40 hours"), "page"
    aggregates = F.count("*").alias("n"), F.max("bytes"), F.approx_count_distinct("case")
    ours = {}
    stream = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    query = (
        stream.groupBy(*by)
        .agg(*aggregates)
        .outputMode("update")
        .parallelism(2)
        .trigger(availableNow=True)
        .start(lambda df, _: ours.update({tuple(r)[:2]: tuple(r)[2:4] for r in df.collect()}))
    )
    query.awaitTermination()
    static = spark.read.schema(SCHEMA).parquet(str(tmp_path / "in"))
    theirs = {tuple(r)[:2]: tuple(r)[2:4] for r in static.groupBy(*by).agg(*aggregates).collect()}
    assert ours == theirs
    assert sum(n for n, _ in ours.values()) > 2 * static.count()


def test_what_is_not_kept_is_refused_with_the_way_out(spark, tmp_path):
    write_epochs(tmp_path / "in", [random_epoch(0)])
    stream = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    refusals = [
        (F.countDistinct("user"), "DISTINCT"),
        (F.median("x"), "percentile_approx"),
        (F.percentile_approx("ts", 0.5), "significant digits"),
        (F.max("user"), "type string"),
        (F.sum("bytes") + 1, "not among those"),
        (F.expr("sum(bytes)"), "cannot be taken apart"),
    ]
    for column, words in refusals:
        with pytest.raises(BadValueError, match=words):
            stream.groupBy("page").agg(column).outputMode("update").to_stream()
    with pytest.raises(QueryRefusedError, match="needs a window of event time and a watermark"):
        stream.groupBy("page").count().start()
    late = read_epochs(spark, tmp_path / "in", SCHEMA).withWatermark("ts", "1 minute")
    with pytest.raises(QueryRefusedError, match="Session"):
        tether.stream(late).groupBy(F.session_window("ts", "2 minutes")).count().start()
    with pytest.raises(QueryRefusedError, match="cannot be updated in place"):
        stream.groupBy("page").count().outputMode("update").toTable("t")
    with pytest.raises(BadValueError, match="option 'path'"):
        stream.groupBy("page").count().option("path", "x")
    with pytest.raises(BadValueError, match="given no column"):
        stream.groupBy()
