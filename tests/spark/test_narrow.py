"""What goes to slots is small: rows whose bytes need no counting, operators without a state."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.spark.graph.consistency import BSP
from tether.spark.graph.prepared import prepare
from tether.spark.session import NARROW_COLUMNS, ROWS_PER_BATCH, is_narrow, tune_epochs
from tether.spark.sinks import discard

pytestmark = pytest.mark.usefixtures("spark")  # it reads the schemas


@pytest.mark.parametrize(
    "schema", ["k long", "k int, v double, at timestamp, day date, ok boolean, d decimal(38,2)"]
)
def test_a_few_numbers_are_narrow(schema):
    assert is_narrow(StructType.fromDDL(schema))


@pytest.mark.parametrize(
    "schema",
    [
        "k string",
        "k long, v binary",
        "k long, v array<double>",
        "k struct<a: long>",
        ", ".join(f"c{i} long" for i in range(NARROW_COLUMNS + 1)),
    ],
)
def test_rows_that_may_be_large_are_not(schema):
    assert not is_narrow(StructType.fromDDL(schema))


BYTES, ROWS = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Bytes", "Records"))


@pytest.mark.parametrize(
    ("narrow", "rows", "counted"),
    [(True, 10_000, False), (True, 10 * ROWS_PER_BATCH, True), (False, 10_000, True)],
)
def test_bytes_are_counted_where_a_batch_may_be_large(spark, narrow, rows, counted):
    session = spark.newSession()
    session.conf.set(ROWS, str(rows))
    before = session.conf.get(BYTES)
    tune_epochs(session, 2, narrow=narrow)
    assert int(session.conf.get(ROWS)) == max(rows, ROWS_PER_BATCH)
    assert (session.conf.get(BYTES) == before) == counted


def test_an_operator_is_sent_without_a_state_of_its_own(spark):
    rows = spark.createDataFrame([(1, 2)], "k long, v long")
    node = tether.stream(rows).apply(KeyedAggregate(["v"]), key="k")._node
    query = prepare({node: discard}, policies=tether.NoTolerance(), consistency=BSP())
    prepared = query.operators[node]
    assert prepared.narrow
    assert len(prepared.blob) < 2_000  # a table of no rows takes 64,000
