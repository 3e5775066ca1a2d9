"""Everyday aggregates that lose slots: overlapping windows, quantiles and top-k keep the bound."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, StringType

import tether
from tether.algorithms.grouped import GroupedParts, Part
from tether.algorithms.grouped_values import ValuesPart
from tether.core.errors import BadValueError
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession

LENGTH, EVERY, BUDGET = 3, 1, 60.0
SCHEMA = pa.schema(
    [
        ("__window_end", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
        ("item", pa.string()),
        ("number", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)


class Unfolded:
    """Stands for a Column: the stand-in for Spark folds no rows."""

    def alias(self, name):
        return name


class Folded(GroupedParts):
    """The operator of ``groupBy``, which folds an epoch's rows itself instead of letting Spark."""

    def __init__(self, emit, divergence="l1"):
        column = Unfolded()
        items = ValuesPart("items", "vi", column, StringType(), "top", most=1000)
        numbers = ValuesPart(
            "numbers", "vn", column, DoubleType(), "halves", fractions=(0.0, 0.5, 1.0), bits=14
        )
        super().__init__(
            [Part("n", column, "int64")],
            values=[items, numbers],
            emit=emit,
            window_end="__window_end",
            divergence=divergence,
        )

    def combine(self):
        return None

    def process(self, batch, out):
        groups = defaultdict(list)
        for row in batch.to_pylist():
            groups[row["__window_end"], row["page"]].append(row)
        folded = [
            {
                "__window_end": end,
                "page": page,
                "n": len(rows),
                "vi": [{"v": row["item"]} for row in rows],
                "vn": [{"v": row["number"]} for row in rows],
            }
            for (end, page), rows in groups.items()
        ]
        listed = (
            pa.list_(pa.struct([("v", pa.string())])),
            pa.list_(pa.struct([("v", pa.float64())])),
        )
        kinds = [*SCHEMA.types[:2], pa.int64(), *listed]
        schema = pa.schema(zip(("__window_end", "page", "n", "vi", "vn"), kinds, strict=True))
        for row in [folded] if folded else []:
            super().process(pa.RecordBatch.from_pylist(row, schema=schema), out)


def rows_of(epoch, entries):
    """Each row in all the windows that it is in; its time is about that of its epoch."""
    found = []
    for before, page, item in entries:
        second = max(0, epoch - before)
        found += [
            {
                "__window_end": (end + LENGTH) * 1_000_000,
                "page": page,
                "item": item,
                "number": float(len(item) + second),
                "t": second * 1_000_000,
            }
            for end in range(second - LENGTH + 1, second + 1)
            if end + LENGTH > 0
        ]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


entries = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.sampled_from(["x", "yy", "zzz"])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=4)
@given(
    epochs=st.lists(entries, min_size=6, max_size=9),
    lost=st.sets(st.integers(1, 5), min_size=1),
    emit=st.sampled_from(["ended", "changed"]),
)
def test_overlapping_windows_stay_within_the_bound(epochs, lost, emit):
    batches = [rows_of(number, some) for number, some in enumerate(epochs)]
    given_out, truth = {}, defaultdict(list)
    # An epoch ends windows by the newest row of the epochs before, and later epochs drop their rows.
    dropped, watermark, newest = -1.0, -1.0, -1.0
    for batch in batches:
        dropped, watermark = watermark, newest
        for row in batch.to_pylist():
            if row["__window_end"].timestamp() > dropped:
                truth[row["__window_end"], row["page"]].append(row)
            newest = max(newest, row["t"].timestamp())
    with tempfile.TemporaryDirectory() as work:
        session = LocalSession(home)
        source = EpochSource(session, batches, SCHEMA)
        source.available = 0
        query = (
            tether.stream(source, replays=True)
            .apply(
                Folded(emit),
                key=["__window_end", "page"],
                parallelism=2,
                window=tether.Hopping(LENGTH, every=EVERY),
                event_time="t",
            )
            .start(
                lambda rows, _: given_out.update(
                    {(row["__window_end"], row["page"]): row for row in rows.collect()}
                ),
                tolerance=tether.Approximate(BUDGET, window=tether.Hopping(LENGTH, every=EVERY)),
                backup=f"{work}/backup",
                checkpoint=f"{work}/checkpoint",
                arena_dir=f"{work}/arena",
            )
        )
        for epoch in range(len(batches)):
            if epoch in lost:
                for arena in Path(work, "arena").glob("tether-*/*"):
                    shutil.rmtree(arena, ignore_errors=True)
            source.available = epoch + 1
            query.processAllAvailable()
        losses = query.bound().spent
        query.stop()
    if emit == "ended":
        assert all(end.timestamp() <= watermark for end, _ in given_out)
    wrong = Counter()
    for key, rows in truth.items():
        if emit == "ended" and key not in given_out and key[0].timestamp() > watermark:
            continue  # still open
        row = given_out.get(key, {"n": 0, "top": [], "halves": None})
        told = Counter({entry["item"]: entry["count"] for entry in row["top"]})
        real = Counter(r["item"] for r in rows)
        items = sum(abs(told[item] - real[item]) for item in told | real)
        wrong[key[0]] += abs(row["n"] - len(rows)) + items
        if not losses:
            numbers = sorted(r["number"] for r in rows)
            middle = numbers[int(np.ceil(len(numbers) / 2)) - 1]
            assert row["halves"] == [numbers[0], middle, numbers[-1]]
            assert row["top"] == [
                {"item": item, "count": n}
                for item, n in sorted(real.items(), key=lambda one: (-one[1], one[0]))
            ]
    assert all(error <= (BUDGET if losses else 0) for error in wrong.values()), wrong


def test_an_operator_that_does_not_know_overlapping_windows_is_refused():
    class Clearing(tether.Operator):
        output = "page string"

        def setup(self, state):
            self.seen = state.number("seen")

    source = EpochSource(LocalSession(home), [], SCHEMA)
    stream = tether.stream(source, replays=True).apply(
        Clearing(), key="page", window=tether.Hopping(LENGTH, every=EVERY), event_time="t"
    )
    with pytest.raises(BadValueError, match="overlap"):
        stream.start(None)
