"""Exact policies on Spark: whatever is lost or killed, the answer is that of a run without failures.

The long matrix, with every point of the protocol and whole jobs killed, runs where ``TETHER_EXACT`` is
set; here each policy meets each kind of query with several losses in one run.
"""

from __future__ import annotations

from collections import Counter

import pytest

import tether
from tether.spark.faults import Fault
from tether.testing.epochs import read_epochs, write_epochs

from .counting import skewed_keys, true_counts
from .test_graphs import Ahead, Behind, Partial, Total

EPOCHS = 7
POLICIES = {
    "mini-batch": tether.MiniBatch(),
    "upstream-backup": tether.UpstreamBackup(0.4),
    "barrier-sync": tether.Barrier(3, mode="sync"),
    "barrier-async": tether.Barrier(2),
}


class Run:
    """One query on directories of its own, with its answer and what it wrote."""

    def __init__(self, spark, work, policy) -> None:
        self.spark, self.work, self.policy = spark, work, policy
        self.tables = skewed_keys(EPOCHS, rows=300, keys=40, seed=4)
        write_epochs(work / "in", self.tables)

    def rows(self):
        return tether.stream(read_epochs(self.spark, self.work / "in", "k long"))

    def start(self, stream, faults, **options):
        return stream.start(
            tether.to_epochs(str(self.work / "out")),
            tolerance=self.policy,
            backup=str(self.work / "backup"),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=faults,
            **options,
        )

    def written(self):
        return self.spark.read.parquet(str(self.work / "out")).collect()


def counts(run, faults):
    query = run.start(run.rows().apply(tether_counts(), key="k", parallelism=2), faults)
    query.processAllAvailable()
    truth = true_counts(run.tables)
    assert {row["k"]: row["count"] for row in query.table("totals").collect()} == truth
    # Each epoch's output is the counts of its keys as of then, once.
    expected, so_far = Counter(), Counter()
    for epoch, table in enumerate(run.tables):
        so_far.update(table["k"].to_pylist())
        expected.update((epoch, key, so_far[key]) for key in set(table["k"].to_pylist()))
    assert Counter((row["epoch"], row["k"], row["count"]) for row in run.written()) == expected
    return query


def tether_counts():
    from tether.algorithms.aggregate import KeyedAggregate

    return KeyedAggregate(divergence="l1")


def pipeline(run, faults):
    stream = run.rows().apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=3)
    query = run.start(stream, faults)
    query.processAllAvailable()
    truth = true_counts(run.tables)
    assert {r["k"]: r["n"] for r in query.table("totals", "total").collect()} == truth
    seen = {r["k"]: r["n"] for r in query.table("seen", "partial").collect()}
    assert sum(seen.values()) == sum(truth.values())
    return query


def loop(run, faults):
    ahead = run.rows().apply(Ahead(), key="k", parallelism=2)
    query = run.start(ahead.apply(Behind(), parallelism=1, feedback_to=ahead), faults)
    query.processAllAvailable()
    models = {(row["epoch"], row["model"]) for row in run.written()}
    assert models == {(0, -1)} | {(epoch, epoch) for epoch in range(1, EPOCHS)}
    assert [row["n"] for row in query.table("epochs", "behind").collect()] == [EPOCHS]
    return query


QUERIES = {"counts": counts, "pipeline": pipeline, "loop": loop}


SLOTS = {
    "counts": {"keyed_aggregate": 2},
    "pipeline": {"partial": 2, "total": 3},
    "loop": {"ahead": 2, "behind": 1},
}


def forget(tmp_path, kind, epoch, *, only=None):
    """Resident state removed: of one slot of the last operator, or of all slots of all operators."""
    slots = [(operator, slot) for operator, n in SLOTS[kind].items() for slot in range(n)]
    return [
        Fault(
            point="before-attach",
            action="forget",
            epoch=epoch,
            slot=slot,
            operator=operator,
            marker=str(tmp_path / f"forgot-{epoch}-{operator}-{slot}"),
        )
        for operator, slot in (slots if only is None else [slots[only]])
    ]


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("name", POLICIES)
def test_losses_change_no_answer(spark, tmp_path, name, kind):
    run = Run(spark, tmp_path, POLICIES[name])
    faults = forget(tmp_path, kind, 2, only=-1) + forget(tmp_path, kind, 5)
    faults.append(Fault(point="halfway", epoch=3, marker=str(tmp_path / "killed")))
    query = QUERIES[kind](run, faults)
    assert (tmp_path / "killed").exists()
    events = Counter(event.what for event in query.story())
    assert events["recovery"] >= 2
    assert query.bound().spent == 0
    assert query.totals()["losses"] == 0
    if name.startswith("barrier"):
        assert events["rewound"] >= 1
        assert events["snapshot"] >= 1
    else:
        assert events["rewound"] == 0
    query.stop()
    assert query.exception() is None
