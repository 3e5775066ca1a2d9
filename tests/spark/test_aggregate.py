"""Keyed counts and sums equal Spark's own groupBy, bit for bit for whole numbers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.word_count import WordCount, words
from tether.cli.answers import LatestPerKey
from tether.core.errors import BadValueError
from tether.testing.epochs import read_epochs, write_epochs

ROW = st.tuples(
    st.sampled_from(["", "a", "b", "ab", "ü", None]),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.integers(-100, 100).map(float)),
)
SCHEMA = pa.schema([("s", pa.string()), ("i", pa.int32()), ("v", pa.int64()), ("x", pa.float64())])
SPARK_SCHEMA = "s string, i int, v long, x double"


def table(rows) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def as_rows(df) -> list[tuple]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(epochs=st.lists(st.lists(ROW, max_size=30), min_size=1, max_size=3))
def test_stream_and_batch_equal_groupby(spark, tmp_path_factory, epochs):
    work = tmp_path_factory.mktemp("aggregate")
    write_epochs(work / "in", [table(rows) for rows in epochs])
    static = spark.read.schema(SPARK_SCHEMA).parquet(str(work / "in"))
    expected = static.groupBy("s", "i").agg(
        F.count(F.lit(1)).alias("count"), F.sum("v").alias("sum(v)"), F.sum("x").alias("sum(x)")
    )
    operator = KeyedAggregate(["v", "x"])
    batch = tether.stream(static).apply(operator, key=["s", "i"], parallelism=2).to_df()
    assert as_rows(batch) == as_rows(expected)

    latest = LatestPerKey(["s", "i"])
    query = (
        tether.stream(read_epochs(spark, work / "in", SPARK_SCHEMA))
        .apply(operator, key=["s", "i"], parallelism=2)
        .start(
            latest,
            tolerance=tether.Approximate(5),
            backup=str(work / "backup"),
            trigger={"availableNow": True},
        )
    )
    query.awaitTermination()
    streamed = [tuple(row.values()) for row in latest.table().to_pylist()]
    assert sorted(streamed, key=repr) == as_rows(expected)


KEYS = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "bigint": [-(2**63), 2**63 - 1, 0, None],
    "float": [0.5, -1.5, None],
    "double": [0.0, -0.0, float("nan"), float("inf"), None],
    "decimal(38,3)": [Decimal("1.500"), Decimal("-99999999999999999999.125"), None],
    "date": [dt.date(1969, 7, 20), dt.date(2026, 1, 1), None],
    "timestamp": [dt.datetime(2026, 1, 1, 12), None],  # noqa: DTZ001 - as Spark gives it
    "string": ["", "x", "x\0y", None],
    "binary": [b"", b"\0", b"\0\0", None],
    "array<int>": [[], [1], [1, None], None],
    "struct<a:int,b:string>": [(1, "x"), (None, None), None],
}


@pytest.mark.parametrize("kind", KEYS)
def test_any_type_of_key(spark, kind):
    rows = [(value,) for value in KEYS[kind]] * 3
    df = spark.createDataFrame(rows, f"key {kind}").repartition(3)
    expected = df.groupBy("key").count()
    ours = tether.stream(df).apply(KeyedAggregate(), key="key", parallelism=2).to_df()
    assert ours.schema["key"].dataType == expected.schema["key"].dataType
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, expected.collect()))


def test_overflow_of_a_sum_is_an_error_and_not_a_wrong_answer(spark, tmp_path):
    write_epochs(tmp_path / "in", [pa.table({"k": [1], "v": [2**62]})] * 2)
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", "k long, v long"))
        .apply(KeyedAggregate(["v"]), key="k", parallelism=1)
        .start(trigger={"availableNow": True})
    )
    with pytest.raises(tether.TetherError, match="epoch 1"):
        query.awaitTermination()


def test_word_count_counts_words(spark, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the cat  and The dog\n\n  and\n")
    lines = spark.read.text(str(tmp_path / "text"))
    counts = tether.stream(words(lines)).apply(WordCount(), key="word", parallelism=2).to_df()
    assert {row.word: row["count"] for row in counts.collect()} == {
        "the": 2,
        "cat": 1,
        "and": 2,
        "dog": 1,
    }


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KeyedAggregate(count=None), "nothing to compute"),
        (lambda: KeyedAggregate(emit="some"), "emit"),
        (lambda: KeyedAggregate(weights={"nothing": 1.0}), "weigh"),
    ],
)
def test_senseless_settings_are_refused(build, message):
    with pytest.raises(BadValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (KeyedAggregate(["nothing"]), "not in the input"),
        (KeyedAggregate(["s"]), "cannot be summed"),
        (KeyedAggregate(count="s"), "names of key columns"),
        (KeyedAggregate(divergence="l7"), "l7"),
    ],
)
def test_settings_that_do_not_fit_the_input_are_refused(spark, operator, message):
    df = spark.createDataFrame([("a", 1)], "s string, v long")
    with pytest.raises(BadValueError, match=message):
        tether.stream(df).apply(operator, key="s").to_df()
