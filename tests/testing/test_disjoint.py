"""Slots that share an entry: their errors add up on it, whatever the key's name says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether import Approximate, Operator
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.word_count import MergedCounts, WordCount
from tether.core.amplification import amplification_of
from tether.core.placement import Placement
from tether.declared import errors_of_copies
from tether.state.slot import SlotState
from tether.testing import LawBrokenError, check_operator, laws
from tether.testing.local import LocalPipeline, Stage


class Pages(Operator):
    """Counts of pages, of rows that may be routed by anything."""

    output = "page bigint, n bigint"

    def setup(self, state: Any) -> None:
        self.pages = state.table("pages", {"page": pa.int64()}, {"n": "int64"}, divergence="max")

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.pages.add(batch.select(["page"]), n=1)


class OwnPages(Pages):
    disjoint = True


class Mislabelled(OwnPages):
    """A table that has the key's name, and other values under it."""

    def setup(self, state: Any) -> None:
        self.pages = state.table("pages", {"user": pa.int64()}, {"n": "int64"}, divergence="max")

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.pages.add([batch["page"]], n=1)


def visits(pairs: list[tuple[int, int]]) -> pa.Table:
    users, pages = [user for user, _ in pairs], [page for _, page in pairs]
    return pa.table({"user": pa.array(users, pa.int64()), "page": pa.array(pages, pa.int64())})


def lose_each(operator: Operator, key: str, epochs: list[pa.Table], theta: float) -> None:
    """Run eight slots that are all lost before the last epoch; hold the counts against the bound."""
    tested = LocalPipeline(
        [Stage(operator, key=[key], parallelism=8)], tolerance=Approximate(theta)
    )
    for rows in epochs[:-1]:
        tested.run(rows)
    tested.lose_all()
    tested.run(epochs[-1])
    held: Counter[int] = Counter()
    for slot in tested.stages[operator.name].slots:
        for batch in slot.state["pages"].batches():  # type: ignore[attr-defined]
            held.update(dict(zip(batch[0].to_pylist(), batch["n"].to_pylist(), strict=True)))
    true = Counter(page for rows in epochs for page in rows["page"].to_pylist())
    worst = max(abs(n - held[page]) for page, n in true.items())
    assert worst <= tested.bound().spent <= tested.bound().promised == theta


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=60),
        min_size=2,
        max_size=6,
    ),
    st.sampled_from([4.0, 16.0, 100.0]),
    st.sampled_from([(Pages, "user"), (Pages, "page"), (OwnPages, "page")]),
)
def test_no_entry_is_wrong_by_more_than_the_bound(
    epochs: list[list[tuple[int, int]]], theta: float, how: tuple[type[Operator], str]
) -> None:
    operator, key = how
    lose_each(operator(), key, [visits(pairs) for pairs in epochs], theta)


def test_errors_of_eight_slots_add_up_on_one_page() -> None:
    """Counted by page, routed by user: what slots may lose has to be shared among them."""
    few = [visits([(user, 0) for user in range(40)]) for _ in range(2)]
    with pytest.raises(AssertionError):
        lose_each(OwnPages(), "user", few, 30.0)  # a false promise is told a false bound
    lose_each(Pages(), "user", few, 30.0)


def errors(operator: Operator, key: list[str], rows: pa.Table) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    from tether.spark.graph.flow import Flow, OperatorNode
    from tether.spark.graph.placement import placement_of

    operator.bind(from_arrow_schema(rows.schema), key)
    state = SlotState.heap()
    operator.setup(state)
    found = errors_of_copies(operator, key, state.specs().values())
    node = OperatorNode((), operator=operator, name="it", key=key, slots=8)
    specs, alone = state.specs().values(), amplification_of({"it": 1.0}, {})
    place = placement_of(Flow((node,)), node, operator, specs, alone, shared=True)
    assert place == Placement(copies=8, errors_of_copies=found)  # on Spark
    return found


def test_only_a_promise_lets_every_slot_use_the_whole_budget() -> None:
    rows = visits([(1, 1)])
    assert errors(Pages(), ["page"], rows) == "add"  # names alone prove nothing
    assert errors(OwnPages(), ["page"], rows) == "max"
    assert errors(OwnPages(), [], rows) == "add"  # without a key rows go anywhere
    assert errors(KeyedAggregate(divergence="max"), ["user"], rows) == "max"
    assert errors(KeyedAggregate(divergence="l1"), ["user"], rows) == "add"
    words = pa.table({"word": ["a"], "count": [1], "shard": [2]})
    assert errors(WordCount(), ["word"], words) == "max"
    assert errors(MergedCounts(), ["word"], words) == "max"
    assert errors(MergedCounts(), ["shard"], words) == "add"


class TwoTables(OwnPages):
    def setup(self, state: Any) -> None:
        super().setup(state)
        self.more = state.table("more", {"page": pa.int64()}, {"n": "int64"}, divergence="max")


class ShownToo(OwnPages):
    def setup(self, state: Any) -> None:
        super().setup(state)
        self.shown = state.vector("shown", 1, weights={"value": 0.0})


class NoEntries(OwnPages):
    def setup(self, state: Any) -> None:
        self.pages = state.vector("pages", 3, divergence="max")


def test_the_largest_error_counts_only_for_one_table() -> None:
    rows = visits([(1, 1)])
    # A slot's θ covers the sum of its tables: the worst entries of two may be in two slots.
    assert errors(TwoTables(), ["page"], rows) == "add"
    assert errors(NoEntries(), ["page"], rows) == "add"  # each slot has all places of a vector
    assert errors(ShownToo(), ["page"], rows) == "max"  # what weighs nothing adds nothing


def batches() -> list[pa.RecordBatch]:
    draw = np.random.default_rng(3)
    return [
        pa.RecordBatch.from_pydict(
            {"user": draw.integers(0, 30, 20), "page": draw.integers(0, 4, 20)}
        )
        for _ in range(3)
    ]


@pytest.mark.parametrize(("operator", "key"), [(OwnPages, "user"), (Mislabelled, "user")])
def test_the_kit_finds_a_false_promise(operator: type[Operator], key: str) -> None:
    with pytest.raises(LawBrokenError) as caught:
        check_operator(operator(), batches(), key=[key], schedules=1)
    assert caught.value.law == laws.DISJOINT


def test_the_kit_accepts_a_true_one() -> None:
    check_operator(OwnPages(), batches(), key=["page"], schedules=1)
