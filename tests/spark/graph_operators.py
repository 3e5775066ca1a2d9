"""Operators of queries with several: counts, and a loop of feedback."""

from __future__ import annotations

import math
import sys

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

import tether

# Spark's workers do not have the tests on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Partial(tether.Operator):
    """Counts of this epoch's rows, whichever keys come to the slot."""

    output = "k long, n long"

    def setup(self, state):
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.seen.add(batch.select(["k"]), n=1)
        grouped = pa.TableGroupBy(pa.Table.from_batches([batch.select(["k"])]), ["k"])
        out.emit(grouped.aggregate([("k", "count")]).rename_columns(["k", "n"]))


class Total(tether.Operator):
    output = "k long, n long"

    def setup(self, state):
        self.totals = state.table("totals", {"k": pa.int64()}, {"n": "int64"})

    def amplification(self, before):
        return 0.0 if isinstance(before, Partial) else math.inf  # counts of an epoch's rows alone

    def process(self, batch, out):
        self.totals.add(batch.select(["k"]), n=batch["n"])

    def on_epoch_end(self, out):
        out.emit(self.totals.rows_to_batch(self.totals.changed()))


class Ahead(tether.Operator):
    """Emits its rows with the newest model that it was given."""

    output = "k long, model long, epoch_rows long"

    def setup(self, state):
        self.model = state.table("model", {"name": pa.int64()}, {"value": "int64"})

    def on_feedback(self, items, out):
        self.model.put(pa.record_batch({"name": [0]}), value=[max(items["value"].to_pylist())])

    def amplification(self, before):
        return 1.0 if isinstance(before, Behind) else math.inf  # the newest count replaces the last

    def process(self, batch, out):
        values = [row["value"] for b in self.model.batches() for row in b.to_pylist()]
        model = np.full(batch.num_rows, values[0] if values else -1)
        out.emit({"k": batch["k"], "model": model, "epoch_rows": np.ones(batch.num_rows, np.int64)})


class Behind(tether.Operator):
    """Counts epochs and sends the count back."""

    output = "model long"
    feedback = "slot long, value long"

    def setup(self, state):
        self.epochs = state.table("epochs", {"name": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        out.emit({"model": batch["model"]})

    def amplification(self, before):
        return 0.0  # its count is of epochs, whatever comes

    def on_epoch_end(self, out):
        self.epochs.add(pa.record_batch({"name": [0]}), n=[1])
        rows = [row for b in self.epochs.batches() for row in b.to_pylist()]
        out.feedback({"slot": [0], "value": [rows[0]["n"]]})


def options(tmp_path, **more):
    """Where a query keeps what it must keep."""
    return {"checkpoint": str(tmp_path / "checkpoint"), "backup": str(tmp_path / "backup"), **more}
