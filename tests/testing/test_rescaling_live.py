"""Another number of slots while the query runs, under kills at every step."""

from __future__ import annotations

from typing import ClassVar, get_args

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql.types import LongType, StructType
from tests.testing.test_fuzz import SMALL
from tests.testing.test_rescaling import Count, Life, counted, wrong_by

import tether
from tether.backup.local import LocalStore
from tether.chaos.faults import Fault, RescalePoint
from tether.core.errors import BadValueError, ChangedProgramError, QueryRefusedError, TetherError
from tether.engine.slot.residents import attached
from tether.operator import DURABLE
from tether.state.identity import Owner
from tether.testing.fuzz import run
from tether.testing.fuzz.building import build_divisible
from tether.testing.fuzz.program import Event, Policy, Strike

ROWS = [[(7 * n + epoch) % 23 for n in range(40)] for epoch in range(12)]
POLICIES = [
    tether.Approximate(60),
    tether.MiniBatch(),
    tether.UpstreamBackup(0.25),
    tether.Barrier(3),
    tether.Barrier(2, mode="sync"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: f"{one.name}-{one.recovery.name}")
def test_the_number_changes_again_and_again_and_the_program_need_not_know(tmp_path, policy):
    life = Life(tmp_path, ROWS)
    query = life.start(2, tolerance=policy, allow_changed=[])
    life.go_on(query, 2)
    for slots in (4, 1, 3):
        query.rescale("count", slots)
        life.go_on(query, 2)
        assert counted(query) == life.truth()
        assert len(query.slots()) == slots
        assert query.bound().spent == 0
    told = [e.detail["after"] for e in query.story() if e.what == "rescaled"]
    assert told == [4, 1, 3]
    rows = sum(map(len, ROWS[:8]))
    assert query.totals()["rows"] == rows
    query.rescale("count", 3)  # has them already
    query.stop()
    again = life.start(2, tolerance=policy, allow_changed=[])
    life.go_on(again, 1)
    assert counted(again) == life.truth()
    assert len(again.slots()) == 3
    again.rescale("count", 2)  # the program's own number
    life.go_on(again, 1)
    again.stop()
    last = life.start(2, tolerance=policy, allow_changed=[])
    life.go_on(last, 1)
    assert counted(last) == life.truth()
    assert len(last.slots()) == 2
    last.stop()


def test_copies_are_placed_anew(tmp_path):
    life = Life(tmp_path, ROWS)
    policy = tether.PartiallyActive(share=0.5)
    query = life.start(2, tolerance=policy, executors=3)
    life.go_on(query, 2)
    for slots, copies in ((4, 2), (1, 0), (3, 1)):
        query.rescale("count", slots)
        life.go_on(query, 2)
        assert counted(query) == life.truth()
        assert [seat["speaks"] for seat in query.copies()].count(False) == copies
    query.stop()
    life.session.stop()


def test_a_number_that_the_program_says_later_counts_more(tmp_path):
    life = Life(tmp_path, ROWS)
    query = life.start(2)
    life.go_on(query, 1)
    query.rescale("count", 4)
    life.go_on(query, 1)
    query.stop()
    with pytest.raises(ChangedProgramError, match="slots"):
        life.start(3, allow_changed=[])
    query = life.start(3)
    life.go_on(query, 1)
    assert (counted(query), len(query.slots())) == (life.truth(), 3)
    query.stop()


@pytest.mark.parametrize("divergence", ["l1", "max"])
def test_what_was_lost_before_stays_in_the_account(tmp_path, divergence):
    life = Life(tmp_path, ROWS)
    lost = [
        Fault(
            point="before-attach", action="forget", epoch=e, slot=1, marker=str(tmp_path / str(e))
        )
        for e in (2, 6)
    ]
    query = life.start(2, operator=Count(divergence), faults=lost)
    life.go_on(query, 4)
    spent = query.bound().spent
    assert spent > 0
    query.rescale("count", 3)
    assert query.bound().spent >= spent
    life.go_on(query, 4)
    assert (tmp_path / "6").exists()
    error = wrong_by(counted(query), life.truth(), divergence)
    assert error <= query.bound().spent
    assert query.bound().spent > spent
    query.rescale("count", 1)
    assert error <= query.bound().spent <= query.bound().ceiling
    query.stop()


@pytest.mark.parametrize("point", get_args(RescalePoint))
@pytest.mark.parametrize("policy", ["approximate", "barrier"])
@pytest.mark.parametrize("action", ["kill", "raise"])
def test_a_driver_that_is_struck_at_any_step_goes_on_rightly(point, policy, action):
    if (policy, action) == ("barrier", "raise") and point != "rescale-recorded":
        pytest.skip("the other three cases take the same way")
    outcome = run(
        replace(
            SMALL,
            policy=Policy(kind=policy, theta=40.0),
            events=(Event(what="rescale", epoch=2, operator="s0", slots=3),),
            strikes=(Strike(point=point, action=action, epoch=1),),
        )
    )
    assert outcome.findings == []
    assert outcome.struck == [(point, action)]
    assert outcome.epochs == 4
    assert outcome.looseness == []  # every answer was right


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_of_moves_and_failures(seed):
    outcome = run(build_divisible(seed))
    assert outcome.findings == []
    assert outcome.looked > 0


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_many_random_histories_of_moves_and_failures(block):
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        assert run(build_divisible(seed)).findings == [], f"seed {seed}"


class Clocked(Count):
    """Beside its counts it knows the largest key so far, and says it with each row."""

    alike: ClassVar = {"largest": "max"}

    def setup(self, state):
        super().setup(state)
        self.largest = state.number("largest", dtype="int64", weights={"value": DURABLE})

    def process(self, batch, out):
        super().process(batch, out)
        self.largest.maximum(batch["k"])


def test_a_number_that_is_alike_in_all_slots_is_given_to_each(tmp_path):
    life = Life(tmp_path, ROWS)
    query = life.start(3, operator=Clocked())
    life.go_on(query, 2)
    query.rescale("clocked", 5)
    query.rescale("clocked", 2)
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    runner = query._driver.runners[0]
    program = runner.orders.program("clocked", 3, 0)
    for slot in range(2):
        with attached(program, slot, Owner.of(life.session.executor(slot))) as resident:
            assert resident.state["largest"].value == 22
    query.stop()


def test_a_number_that_a_loss_may_change_is_not_given_to_each(tmp_path):
    class Counted(Clocked):
        def setup(self, state):
            Count.setup(self, state)
            self.largest = state.number("largest", dtype="int64")

    life = Life(tmp_path, ROWS)
    query = life.start(3, operator=Counted())
    life.go_on(query, 1)
    with pytest.raises(ChangedProgramError, match="a loss may change it"):
        query.rescale("counted", 5)
    query.stop()


class Newest(tether.Operator):
    """Keeps the newest count of each key."""

    output = StructType().add("k", LongType())
    disjoint = True

    def amplification(self, before):
        return 1.0

    def setup(self, state):
        self.counts = state.table("counts", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.counts.put(batch.select(["k"]), n=batch["n"])


def test_fewer_slots_are_refused_where_an_operator_before_has_lost_state(tmp_path):
    life = Life(tmp_path, ROWS)
    lost = Fault(
        point="before-attach",
        action="forget",
        epoch=3,
        slot=1,
        operator="count",
        marker=str(tmp_path / "lost"),
    )
    query = life.start(2, faults=[lost], then=Newest())
    life.go_on(query, 2)
    query.rescale("newest", 1)
    query.rescale("newest", 2)
    life.go_on(query, 2)
    assert (tmp_path / "lost").exists()
    with pytest.raises(ChangedProgramError, match="'count', from which it gets rows, has lost"):
        query.rescale("newest", 1)
    query.rescale("newest", 3)
    query.rescale("count", 1)
    life.go_on(query, 1)
    assert len(query.slots()) == 4
    query.stop()


def test_entries_that_are_not_in_the_slots_of_their_keys_are_refused_and_the_query_goes_on(
    tmp_path,
):
    class Wandering(Count):
        def process(self, batch, out):
            super().process(batch, out)
            self.seen.add([pa.array([99])], n=1)  # in every slot

    life = Life(tmp_path, ROWS)
    query = life.start(3, operator=Wandering())
    life.go_on(query, 1)
    with pytest.raises(ChangedProgramError, match="not in the slots of their keys"):
        query.rescale("wandering", 2)
    life.go_on(query, 1)
    assert LocalStore(tmp_path / "backup").read_manifest().moving == {}
    query.stop()
    again = life.start(3, operator=Wandering(), allow_changed=[])
    life.go_on(again, 1)
    again.stop()


def test_a_store_that_fails_in_the_middle_ends_the_query_and_the_next_one_knows(
    tmp_path, monkeypatch
):
    life = Life(tmp_path, ROWS)
    query = life.start(2, allow_changed=[])
    life.go_on(query, 2)
    write = LocalStore.append_commit

    def fails(self, record):
        end = write(self, record)
        if record.run.startswith("rescale"):
            raise TetherError("the store is gone, nobody knows whether it has the record")
        return end

    monkeypatch.setattr(LocalStore, "append_commit", fails)
    with pytest.raises(TetherError, match="the store is gone"):
        query.rescale("count", 4)
    monkeypatch.setattr(LocalStore, "append_commit", write)
    assert query.exception() is not None
    query.stop()
    again = life.start(2, allow_changed=[])
    life.go_on(again, 1)
    assert (counted(again), len(again.slots())) == (life.truth(), 4)
    again.stop()


def test_what_cannot_be_done_is_refused_and_the_query_goes_on(tmp_path):
    life = Life(tmp_path, ROWS)
    query = life.start(2, operator=Count(total=True))
    with pytest.raises(QueryRefusedError, match="No epoch has run"):
        query.rescale("count", 3)
    life.go_on(query, 1)
    for slots in (0, 2.5, True):
        with pytest.raises(BadValueError, match="no number of slots"):
            query.rescale("count", slots)
    with pytest.raises(BadValueError, match="no operator 'sum'"):
        query.rescale("sum", 3)
    with pytest.raises(ChangedProgramError, match="'total' is a number"):
        query.rescale("count", 3)
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    query.stop()
    with pytest.raises(QueryRefusedError, match="has ended"):
        query.rescale("count", 3)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (tether.NoTolerance(), "keeps no backups"),
        (tether.Barrier(3, meanwhile="stale"), "a second run of it"),
        (tether.Approximate(60, heal=tether.Barrier(4)), "a second run of it"),
    ],
    ids=["none", "meanwhile", "heal"],
)
def test_policies_under_which_it_cannot_be_done_while_the_query_runs(tmp_path, policy, why):
    life = Life(tmp_path, ROWS)
    query = life.start(2, tolerance=policy)
    life.go_on(query, 1)
    with pytest.raises(TetherError, match=why):
        query.rescale("count", 3)
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    query.stop()
