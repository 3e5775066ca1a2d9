"""The slots of keys, worked out here, are those that Spark's own hash gives."""

from __future__ import annotations

import datetime as dt
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tether.sources.folding import spark_hash

ZONED = pa.timestamp("us", "UTC")
NUMBERS = random.Random(1)
COLUMNS = {
    "boolean": (pa.bool_(), [True, False, None] * 100),
    "tinyint": (pa.int8(), [NUMBERS.randint(-128, 127) for _ in range(300)]),
    "smallint": (pa.int16(), [NUMBERS.randint(-(1 << 15), (1 << 15) - 1) for _ in range(300)]),
    "int": (pa.int32(), [0, -1, None, 1 << 30] * 75),
    "bigint": (pa.int64(), [NUMBERS.randint(-(1 << 63), (1 << 63) - 1) for _ in range(300)]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf, None] * 50),
    "double": (pa.float64(), [0.0, -0.0, -2.25, math.nan, -math.inf, None] * 50),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 5, 4), None] * 100),
    "timestamp": (ZONED, [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), None] * 150),
    "string": (
        pa.string(),
        [
            None if n % 11 == 0 else "".join(NUMBERS.choices("aäß漢🙂 ", k=n % 23))
            for n in range(300)
        ],
    ),
    "binary": (pa.binary(), [NUMBERS.randbytes(n % 19) for n in range(300)]),
}


def test_every_type_alone_and_all_of_them_together(spark):
    arrays = [pa.array(values, kind) for kind, values in COLUMNS.values()]
    batch = pa.RecordBatch.from_arrays(arrays, list(COLUMNS))
    cases = [{kind: kind} for kind in COLUMNS] + [{kind: kind for kind in COLUMNS}]
    slots = spark.createDataFrame(pa.Table.from_batches([batch])).select(
        *[
            F.pmod(F.hash(*[F.col(name) for name in types]), F.lit(1_000_003)).alias(f"case{n}")
            for n, types in enumerate(cases)
        ]
    )
    found = slots.toArrow()
    for number, types in enumerate(cases):
        here = spark_hash.slots_of(batch, types, 1_000_003)
        assert here.tolist() == found[f"case{number}"].to_pylist(), types


def test_a_slice_is_hashed_like_the_whole():
    words = pa.array([None, "to", "be", None, "or not"])
    batch = pa.RecordBatch.from_arrays([words], ["w"])
    whole = spark_hash.slots_of(batch, {"w": "string"}, 7)
    part = spark_hash.slots_of(batch.slice(1, 3), {"w": "string"}, 7)
    assert np.array_equal(whole[1:4], part)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1], "decimal(10,0)"),
        (np.array(["2026-01-01"], "M8[us]"), "timestamp"),
        (["x" * 5000], "string"),
    ],
    ids=["decimal", "without a zone", "very long"],
)
def test_what_only_spark_can_tell_is_left_to_it(values, kind):
    batch = pa.RecordBatch.from_arrays([pa.array(values)], ["x"])
    assert spark_hash.slots_of(batch, {"x": kind}, 4) is None
