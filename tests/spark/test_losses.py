"""What a loss cost is a figure, fixed when it happens: by what was durable, whatever comes after."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import tether
from tether.core.errors import BackupUnreadableError
from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.terms import terms_of
from tether.policies.upstream_backup import UpstreamBackup

from .one_slot import Harness, Told, distance

# ---- windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver_dies", [True, False])
def test_what_a_sliding_window_gives_back_is_durable_before_it_is_used(made, driver_dies):
    """θ is 20, then 10 after a loss, then 20 again; a loss of 19 must not be priced at 10."""
    slot = made(tether.Approximate(40, window=Sliding(3, "epochs")), Told())
    slot.epoch([[1]])
    slot.lose_state()
    assert slot.epoch([[1]]).theta == 10
    for _ in range(3):
        status = slot.epoch([])
    assert status.theta == 20
    assert slot.epoch([[2] * 18]).frame is None
    lost = slot.counts()
    slot.lose_state()
    if driver_dies:
        slot.restart()
    status = slot.epoch([])
    assert distance(lost, slot.counts()) > 10
    assert status.recovery.bound >= 19
    assert slot.counts()[-2] == status.recovery.bound  # the operator was told the same
    assert status.recovery.loss.theta == 20


def test_what_a_hopping_window_gives_back_is_durable_too(made):
    slot = made(tether.Approximate(40, window=Hopping(4, "epochs")))
    slot.epoch([[1]])
    slot.lose_state()
    assert slot.epoch([]).theta == 10
    slot.epoch([])
    assert slot.epoch([]).theta == 20  # the window has ended
    assert slot.epoch([[2] * 20]).frame is None
    slot.lose_state()
    slot.restart()
    assert slot.epoch([]).recovery.bound == 20


def test_a_threshold_that_stays_as_it_is_costs_no_records(made):
    slot = made(tether.Approximate(40, window=Sliding(3, "epochs")))
    for _ in range(10):
        slot.epoch([[1]])
    records = slot.store.read_commits().history._live
    assert [applied.record.epoch for applied in records] == [0]


# ---- crashes around the record ------------------------------------------------------------------


def test_a_loss_whose_epoch_is_run_again_is_counted_once(made):
    slot = made(tether.Approximate(40))
    slot.epoch([[1] * 8])
    slot.lose_state()
    slot.record(slot.run(1, [[2]]))  # and the driver dies before Spark commits
    slot.restart()
    assert slot.ledger.bound().spent == 8
    status = slot.epoch([[2]])
    assert status.recovery is not None
    assert slot.ledger.bound().spent == status.recovery.bound == 8
    assert slot.epoch([]).theta == 10


def test_a_loss_stays_in_the_account_when_its_epoch_is_undone_and_the_rest_is_flushed(made):
    """The query is stopped between the record and Spark's commit: what is saved lacks what was lost."""
    slot = made(tether.Approximate(40))
    slot.epoch([[1] * 8])
    slot.lose_state()
    status = slot.run(1, [[2]])
    slot.record(status)
    slot.lineage = status.lineage
    slot.flush()  # as of epoch 0
    slot.lose_state()
    slot.restart()
    status = slot.epoch([[2]])
    assert status.recovery.exact
    assert slot.counts() == {2: 1}
    assert slot.ledger.bound().spent == 8
    assert status.theta == 10


def test_two_losses_in_epochs_of_one_number_are_two(made, tmp_path):
    """After such a flush the epoch is run again, and its backup may have become unreadable meanwhile."""
    slot = made(tether.Approximate(40))
    frame = slot.epoch([[1] * 30 + [3]]).frame
    assert frame.kind == "partial"
    slot.epoch([[2] * 8])
    slot.lose_state()
    status = slot.run(2, [])
    slot.record(status)
    slot.lineage = status.lineage
    slot.flush()
    slot.lose_state()
    log = tmp_path / "backup" / frame.ref.name
    data = bytearray(log.read_bytes())
    data[frame.ref.offset + frame.ref.length - 40] ^= 0xFF
    log.write_bytes(data)
    slot.restart()
    slot.epoch([])
    assert [loss.epoch for loss in slot.history().losses("count", 0)] == [2, 2]
    assert distance({1: 30, 3: 1, 2: 8}, slot.counts()) == 39
    assert slot.ledger.bound().spent >= 39


def test_a_flushed_state_is_not_gone_on_with(made):
    """Its arena does not know what was flushed: its next backup would leave out what fell back."""
    slot = made(tether.Approximate(40))
    slot.epoch([[1] * 15])
    slot.flush()
    status = slot.epoch([[2]])
    assert status.recovery is not None
    assert status.recovery.exact
    assert slot.counts() == {1: 15, 2: 1}
    assert slot.ledger.bound().spent == 0


def test_the_driver_that_dies_takes_its_knowledge_of_the_divergence_with_it(made):
    slot = made(tether.Approximate(40))
    slot.epoch([[1]])
    slot.epoch([[1] * 7])
    slot.lose_state()
    told = slot.run(2, [])
    assert told.recovery.bound == 8  # it was reported, and the driver lives
    slot.restart()
    assert slot.run(2, []).recovery.bound == 20  # θ: nobody knows better
    assert slot.ledger.bound().at_risk == 20


def test_a_record_of_the_epoch_before_says_more_than_its_threshold(made):
    slot = made(tether.Approximate(40))
    slot.epoch([[1] * 3])
    slot.lose_state()
    slot.restart()
    assert slot.run(1, []).recovery.bound == 3


def test_a_slot_that_no_record_speaks_of_may_have_lost_anything(made):
    slot = made(tether.Approximate(40))
    slot.committed = 3  # as Spark says
    slot.restart()
    assert slot.ledger.bound().at_risk == math.inf
    assert slot.epoch([]).recovery.bound == math.inf
    assert slot.ledger.bound().spent == math.inf


# ---- no books -----------------------------------------------------------------------------------


def test_without_backups_a_restart_says_what_it_does_not_know(made):
    slot = made(tether.NoTolerance())
    slot.epoch([[1]])
    slot.restart()
    assert slot.ledger.bound().spent == math.inf
    slot.epoch([])
    assert slot.ledger.bound().spent == 0  # its state is the one it was born with
    slot.lose_state()
    slot.epoch([])
    assert slot.ledger.bound().spent == math.inf
    slot.restart()
    assert slot.epoch([[1]]).recovery is None  # the state is there, but not what was lost before
    assert slot.ledger.bound().spent == math.inf


# ---- any history --------------------------------------------------------------------------------

POLICIES = [
    tether.Approximate(40),
    tether.Approximate(40, early=0.4, backup_target=0.2),
    tether.Approximate(400),
    tether.Approximate(6),
    tether.Approximate(40, window=Sliding(2, "epochs")),
    tether.Approximate(40, window=Hopping(3, "epochs")),
    tether.Approximate(40, window=Sliding(9, "items")),
    tether.Approximate(20, window=Decaying(2, "epochs")),
    tether.MiniBatch(),
    UpstreamBackup(0.3, most_items=20),
]
EPOCH = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), max_size=2)


class AnyHistory(RuleBasedStateMachine):
    """Losses, driver deaths at any step, stops in good order, and other policies at restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tether-test-"))
        self.slot = Harness(POLICIES[0], self.root)
        self.truth: Counter[int] = Counter()
        self.live: Counter[int] = Counter()
        """The resident state at the end of the last committed epoch."""
        self.windows = False
        self.broken = False

    @precondition(lambda self: not self.broken)
    @rule(batches=EPOCH, dies=st.lists(st.sampled_from(["slot", "driver", "record"]), max_size=3))
    def epoch(self, batches, dies):
        """An epoch; before its commit the slot's node, or the driver, dies at some step."""
        number = self.slot.committed + 1
        try:
            for what in dies:
                status = self.slot.run(number, batches)
                if what == "slot":
                    self.slot.lose_state()
                    self.slot.turn += 1
                if what == "record":
                    self.slot.record(status)
                if what != "slot":
                    self.slot.restart()
            status = self.slot.run(number, batches)
        except BackupUnreadableError:
            self.broken = True  # an exact policy refuses what it cannot restore
            assert self.slot.policy.recovery.logs_rows
            return
        self.slot.commit(status)
        self.slot.turn += 1
        came = Counter(key for keys in batches for key in keys)
        now = Counter(self.slot.counts())
        if status.recovery is not None:
            restored = {key: now[key] - came[key] for key in now.keys() | came.keys()}
            assert distance(self.live, restored) <= status.recovery.bound
        self.truth.update(came)
        self.live = now

    @rule()
    def lose_state(self):
        self.slot.lose_state()

    @rule(policy=st.sampled_from(POLICIES))
    def restart(self, policy):
        self.slot.restart(policy)
        self.windows |= self.slot.window is not None

    @precondition(lambda self: self.slot.committed >= 0)
    @rule(undone=EPOCH)
    def stop(self, undone):
        """In good order, but perhaps after an epoch that Spark has not committed."""
        if not self.broken and undone:
            try:
                status = self.slot.run(self.slot.committed + 1, undone)
            except BackupUnreadableError:
                self.broken = True
                return
            self.slot.record(status)
            self.slot.lineage = status.lineage
        self.slot.flush()
        if not self.broken and undone:
            self.live = Counter(self.slot.counts())  # it may have been restored on the way
        self.slot.lose_state()
        self.slot.restart()

    @invariant()
    def told(self):
        """All that is missing is in the account, and the bound that a user sees."""
        error = distance(self.truth, self.live)
        account = self.slot.history().losses("count", 0)
        assert error <= sum(loss.cost for loss in account)
        now = self.slot.ledger.bound()
        if not self.windows:  # a windowed bound is about the window's answer only
            assert error <= now.spent
            assert now.holds
        terms = terms_of(self.slot.policy, Placement(copies=1))
        assert all(loss.at_most <= loss.theta for loss in account)
        assert now.extra <= sum(loss.cost for loss in account if loss.under != terms or loss.extra)

    def teardown(self):
        self.slot.close()
        shutil.rmtree(self.root, ignore_errors=True)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=40, stateful_step_count=14, deadline=None)
