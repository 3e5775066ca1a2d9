"""Which rows are so narrow that no batch of them needs its bytes counted."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from tether.spark.session import NARROW_COLUMNS, is_narrow

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
