"""How errors spread in a query's graph: which ways are known, and what the query says of it."""

from __future__ import annotations

import math
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tether
from tether.chaos.faults import Fault
from tether.core.amplification import amplification_of
from tether.core.placement import Placement
from tether.engine.query.ledger import Ledger, Spread, bound_of
from tether.spark.graph.flow import Flow, OperatorNode, SourceNode, StepNode
from tether.testing.epochs import read_epochs, write_epochs

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Totals(tether.Operator):
    output = "k long, n long"

    def setup(self, state: Any) -> None:
        self.sums = state.table("sums", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.sums.add(batch.select(["k"]), n=batch["n"])

    def on_epoch_end(self, out: Any) -> None:
        out.emit(self.sums.rows_to_batch(self.sums.changed()))


class Newest(Totals):
    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.sums.put(batch.select(["k"]), n=batch["n"])

    def amplification(self, before: tether.Operator) -> float:
        return 1.0 if isinstance(before, Totals) else math.inf


def operator(name: str, *parents: Any) -> OperatorNode:
    return OperatorNode(parents, operator=Totals(), name=name, key=["k"], slots=1)


def test_only_what_comes_straight_and_once_is_as_it_was_sent() -> None:
    source = SourceNode(None)  # type: ignore[arg-type]
    one, other = operator("one", source), operator("other", source)

    def step(*parents: Any, united: bool = False) -> StepNode:
        return StepNode(parents, lambda *rows: rows[0], regroups=united)

    def senders(*parents: Any) -> dict[str, bool]:
        last = operator("last", *parents)
        return Flow((last,)).senders(last)

    assert senders(one) == {"one": True}
    assert senders(source) == {}
    assert senders(step(one)) == {"one": False}
    assert senders(step(one, other, united=True)) == {"one": True, "other": True}
    assert senders(step(one, step(other), united=True)) == {"one": True, "other": False}
    # The same rows twice: whoever adds them adds the error twice.
    assert senders(step(one, one, united=True)) == {"one": False}
    assert senders(step(one, step(one), united=True)) == {"one": False}
    # Those behind another operator are not its own senders.
    assert senders(operator("between", one)) == {"between": True}


def test_one_policy_given_twice_is_two_budgets() -> None:
    """By name, the same object may be the policy of several operators: each may lose all of it."""
    policy = tether.Approximate(60.0)
    ledgers = [Ledger(name, 1, policy, Placement()) for name in ("one", "other")]
    spread = amplification_of({"one": 1.0, "other": 1.0}, {("one", "other"): 1.0})
    glimpses = [ledger.glimpse() for ledger in ledgers]
    assert bound_of(glimpses, Spread(spread, shared=False)).promised == 120.0
    assert bound_of(glimpses, Spread(spread, shared=True)).promised == 60.0
    assert bound_of(glimpses, Spread(spread, shared=False), "one").promised == 60.0


@pytest.fixture
def rows(spark, tmp_path):
    epochs = [pa.table({"k": [1, 2, 3], "n": [7, 8, 9]}) for _ in range(4)]
    write_epochs(tmp_path / "in", epochs)
    return lambda: tether.stream(read_epochs(spark, tmp_path / "in", "k long, n long"))


def test_a_query_tells_how_errors_spread_and_counts_them_so(rows, tmp_path):
    query = (
        rows()
        .apply(Totals(), key="k", parallelism=1)
        .transform(lambda df: df.selectExpr("k", "3 * n AS n"))
        .apply(Newest(), key="k", parallelism=1, amplification=3.0)
        .apply(Totals(), key="k", parallelism=1, name="added")
        .start(
            tolerance=tether.Approximate(600),
            backup=str(tmp_path / "backup"),
            arena_dir=str(tmp_path / "arena"),
            faults=[
                Fault(
                    point="before-attach",
                    marker=str(tmp_path / "m"),
                    epoch=2,
                    operator="totals",
                    action="forget",
                )
            ],
        )
    )
    query.processAllAvailable()
    totals, newest, added = query.bound().operators
    # Two share Θ, and an error of the first counts three times in the second.
    assert (totals.own_promised, newest.own_promised, added.own_promised) == (100.0, 300.0, 600.0)
    assert totals.spent > 0
    assert newest.spent == query.bound("newest").spent == 3 * totals.spent <= newest.promised == 600
    # A table has not been told of how much it grows where running totals are added up.
    assert (query.bound().promised, query.bound().spent) == (math.inf, math.inf)
    assert query.bound().unknown == (("newest", "added"),)
    assert added.unbounded_by == ("totals", "newest")
    assert query.lastProgress["tether"]["bound"]["promised"] == math.inf
    held = {row["k"]: row["n"] for row in query.table("sums", "newest").collect()}
    truth = {1: 3 * 28, 2: 3 * 32, 3: 3 * 36}
    assert 0 < sum(abs(truth[k] - n) for k, n in held.items()) <= newest.spent
    text = query.explain()
    assert "its part is 600 / 6 = 100" in text
    assert "How much an error of 'newest' can grow in 'added' is not known." in text
    assert "nothing is promised for 'added' once 'totals' or 'newest' has lost something" in text
    assert query.story()[0].detail["unknown"] == [["newest", "added"]]
    query.stop()
