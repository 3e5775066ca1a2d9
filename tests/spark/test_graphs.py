"""Several operators in one query: rows, feedback, consistency models and windows between them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import tether
from tether.core.errors import BadValueError, QueryRefusedError
from tether.testing.epochs import read_epochs, write_epochs

from .counting import skewed_keys, true_counts
from .graph_operators import Ahead, Behind, Partial, Total, options

EPOCHS = 5


@pytest.fixture
def source(spark, tmp_path):
    tables = skewed_keys(EPOCHS, rows=400, keys=50, seed=3)
    write_epochs(tmp_path / "in", tables)
    return lambda: tether.stream(read_epochs(spark, tmp_path / "in", "k long")), tables


def counts(query, operator="total", table="totals"):
    return {row["k"]: row["n"] for row in query.table(table, operator).collect()}


def test_two_operators_in_a_row_with_a_step_between(source, tmp_path):
    rows, tables = source
    query = (
        rows()
        .apply(Partial(), parallelism=2)
        .transform(lambda df: df.where("k % 2 = 0"))
        .apply(Total(), key="k", parallelism=3)
        .start(tolerance=tether.Approximate(200), **options(tmp_path))
    )
    query.processAllAvailable()
    assert counts(query) == {k: n for k, n in true_counts(tables).items() if k % 2 == 0}
    assert counts(query, "partial", "seen") == true_counts(tables)
    assert {(s["operator"], s["slot"]) for s in query.slots()} == {
        ("partial", 0),
        ("partial", 1),
        ("total", 0),
        ("total", 1),
        ("total", 2),
    }
    # The operators share one budget: what all slots may lose together is at most that.
    assert sum(slot["theta"] for slot in query.slots()) <= 200
    query.stop()
    again = (
        rows()
        .apply(Partial(), parallelism=2)
        .transform(lambda df: df.where("k % 2 = 0"))
        .apply(Total(), key="k", parallelism=3)
    )
    write_epochs(tmp_path / "in", [pa.table({"k": [2, 2]})], first=EPOCHS)
    query = again.start(tolerance=tether.Approximate(200), **options(tmp_path))
    query.processAllAvailable()
    assert counts(query)[2] == true_counts(tables)[2] + 2
    assert query.bound().spent == 0
    query.stop()


def test_fan_out_runs_the_shared_operator_once_and_both_ends_get_its_rows(source, tmp_path):
    rows, tables = source
    partial = rows().apply(Partial(), parallelism=2)
    even = partial.transform(lambda df: df.where("k % 2 = 0")).apply(
        Total(), key="k", parallelism=2, name="even"
    )
    odd = partial.transform(lambda df: df.where("k % 2 = 1")).apply(
        Total(), key="k", parallelism=2, name="odd"
    )
    seen = Counter()

    def collect(df, epoch):
        seen.update({row["k"]: row["n"] for row in df.collect()})

    query = even.start(collect, also=[(odd, collect)], **options(tmp_path))
    query.processAllAvailable()
    truth = true_counts(tables)
    assert counts(query, "even") | counts(query, "odd") == truth
    assert query.totals()["rollbacks"] == 0
    assert seen.keys() == truth.keys()
    query.stop()


def test_fan_in_of_operators_and_of_two_sources(spark, source, tmp_path):
    rows, tables = source
    write_epochs(tmp_path / "other", [pa.table({"k": [7, 7, 7]})])
    other = tether.stream(read_epochs(spark, tmp_path / "other", "k long"))
    left = rows().apply(Partial(), parallelism=2, name="left")
    right = other.apply(Partial(), parallelism=1, name="right")
    query = left.union(right).apply(Total(), key="k", parallelism=2).start(**options(tmp_path))
    query.processAllAvailable()
    assert counts(query) == true_counts(tables) + Counter({7: 3})
    query.stop()


@pytest.mark.parametrize("keys", [[3], pytest.param([0, 1, 2, 3, 4, 5], marks=pytest.mark.long)])
def test_a_sink_may_put_partitions_together(spark, tmp_path, keys):
    write_epochs(tmp_path / "in", [pa.table({"k": keys})] * 3)
    rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"))
    seen = {}

    def collect(df, epoch):
        seen.update({row["k"]: row["n"] for row in df.coalesce(1).collect()})

    query = rows.apply(Partial(), parallelism=2).apply(Total(), key="k", parallelism=4)
    query = query.start(collect, **options(tmp_path))
    query.processAllAvailable()
    assert counts(query) == seen == dict.fromkeys(keys, 3)
    assert [event.what for event in query.story()].count("replanned") == 1
    query.stop()


def test_the_batch_form_of_a_graph_is_its_answer(spark, source):
    _, tables = source
    static = spark.createDataFrame(pa.concat_tables(tables))
    answer = (
        tether.stream(static)
        .apply(Partial(), parallelism=2)
        .apply(Total(), key="k", parallelism=2)
        .to_df()
    )
    assert {row["k"]: row["n"] for row in answer.collect()} == true_counts(tables)


def loop(rows, **start):
    ahead = rows.apply(Ahead(), key="k", parallelism=2)
    behind = ahead.apply(Behind(), parallelism=1, feedback_to=ahead)
    models = {}

    def collect(df, epoch):
        models[epoch] = {row["model"] for row in df.collect()}

    return behind.start(collect, **start), models


def test_feedback_of_an_epoch_is_there_in_the_next_one(source, tmp_path):
    rows, _ = source
    query, models = loop(rows(), tolerance=tether.MiniBatch(), **options(tmp_path))
    query.processAllAvailable()
    assert models == {0: {-1}} | {epoch: {epoch} for epoch in range(1, EPOCHS)}
    query.stop()
    # After a restart the feedback of the last epoch is still to be delivered.
    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 3]})], first=EPOCHS)
    query, models = loop(rows(), tolerance=tether.MiniBatch(), **options(tmp_path))
    query.processAllAvailable()
    assert models == {EPOCHS: {EPOCHS}}
    query.stop()


@pytest.mark.parametrize(
    "model",
    [
        tether.SSP(1),
        pytest.param(tether.SSP(3), marks=pytest.mark.long),
        pytest.param(tether.ASP(), marks=pytest.mark.long),
    ],
)
def test_no_slot_ever_uses_a_staler_model_than_allowed(spark, tmp_path, model):
    write_epochs(tmp_path / "in", skewed_keys(8, rows=50, keys=20, seed=1))
    rows = tether.stream(read_epochs(spark, tmp_path / "in", "k long"))
    query, models = loop(rows, tolerance=tether.MiniBatch(), consistency=model, **options(tmp_path))
    query.processAllAvailable()
    assert sorted(models) == list(range(8))
    for epoch, used in models.items():
        # The value sent by epoch f is f + 1; none at all counts as epoch -1.
        for value in used:
            assert value == -1 or 0 < value <= epoch
            assert epoch - max(value, 0) <= model.staleness
    query.stop()
    # What the part behind did is as durable as the rest: the count of its epochs goes on.
    write_epochs(tmp_path / "in", [pa.table({"k": [1]})], first=8)
    query, models = loop(rows, tolerance=tether.MiniBatch(), consistency=model, **options(tmp_path))
    query.processAllAvailable()
    assert sorted(models) == [8]
    table = query.table("epochs", "behind").collect()
    assert [row["n"] for row in table] == [9]
    query.stop()


def test_a_failure_behind_the_loop_ends_the_query_with_its_cause(source, tmp_path):
    rows, _ = source

    class Breaks(Behind):
        name = "behind"

        def process(self, batch, out):
            raise ValueError("no such model")

    ahead = rows().apply(Ahead(), key="k", parallelism=2)
    query = ahead.apply(Breaks(), parallelism=1, feedback_to=ahead).start(
        consistency=tether.SSP(1), **options(tmp_path)
    )
    with pytest.raises(tether.TetherError, match="no such model"):
        query.processAllAvailable()
    query.stop()


def test_mistakes_in_a_graph_are_named(source, tmp_path):
    rows, _ = source
    one = rows().apply(Total(), key="k", name="t")
    with pytest.raises(BadValueError, match="Several operators"):
        one.apply(Total(), key="k", name="t").start()
    other = rows().apply(Ahead(), key="k")
    with pytest.raises(BadValueError, match="not before it"):
        rows().apply(Behind(), feedback_to=other, name="b").start()
    with pytest.raises(QueryRefusedError, match="no operator"):
        rows().start()
    with pytest.raises(QueryRefusedError, match="no feedback loop"):
        rows().apply(Partial()).start(consistency=tether.SSP(1))
    with pytest.raises(BadValueError, match="tolerance names the operators"):
        rows().apply(Partial()).start(tolerance={"x": tether.NoTolerance()})
    with pytest.raises(BadValueError, match="goes by event time"):
        rows().apply(Partial(), window=tether.Hopping(60)).start()
    with pytest.raises(BadValueError, match="not a column of timestamps"):
        rows().apply(Partial(), window=tether.Hopping(60), event_time="k").start()
    with pytest.raises(BadValueError, match="staleness"):
        tether.SSP(-1)
