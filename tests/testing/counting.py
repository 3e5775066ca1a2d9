"""The operator of tests on the stand-in for Spark: it counts keys, and tells those that changed."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType, StructType

import tether


class Count(tether.Operator):
    output = StructType().add("k", LongType()).add("n", LongType())

    def setup(self, state):
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.seen.add(batch.select(["k"]), n=1)

    def on_epoch_end(self, out):
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class MergingCount(Count):
    merges = True
