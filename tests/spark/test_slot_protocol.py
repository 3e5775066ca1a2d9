"""The epoch protocol of a slot without Spark: any order of epochs, retries, losses and restarts.

A reference counts the rows of committed epochs. Whatever happens, the slot's state must differ from
it by no more than the losses that were reported, and those must sum to no more than Θ.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import tether
from tether.chaos.faults import Fault
from tether.core.errors import BackupError, StaleOutputError

from .one_slot import Count, Harness


class Compensating(Count):
    name = "count"

    def on_recover(self, loss):
        self.seen.add([[99]], n=int(loss.bound))


def untimed(status):
    return msgspec.structs.replace(status, seconds={})


KEYS = st.lists(st.integers(0, 9), min_size=1, max_size=12)
EPOCH = st.lists(KEYS, max_size=3)
TRY = st.tuples(st.booleans(), st.booleans())
"""A try of an epoch: whether it was cut off, and whether the next is the driver's next turn."""


class SlotMachine(RuleBasedStateMachine):
    policy = tether.Approximate(40)

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tether-test-"))
        self.harness = Harness(self.policy, self.root)
        self.truth: Counter[int] = Counter()
        self.there = False
        self.run_here = ""
        """Run of the driver that the resident state was last changed by."""

    @rule(batches=EPOCH, tries=st.lists(TRY, max_size=3), looks=st.lists(st.booleans(), max_size=2))
    def epoch(self, batches, tries, looks):
        """An epoch, perhaps tried before, its output used again by the sink, all or a part of it."""
        epoch = self.harness.committed + 1
        for cut_off, another_turn in tries:
            self.harness.run(epoch, batches, stop_after=1 if cut_off else None)
            self.harness.turn += another_turn
        status = self.harness.run(epoch, batches)
        output = self.harness.output
        for whole in looks:
            again = self.harness.run(epoch, batches, stop_after=None if whole else 1)
            assert again is None or untimed(again) == untimed(status)
            assert self.harness.output == output
        self.harness.commit(status)
        self.harness.turn += 1
        for keys in batches:
            self.truth.update(keys)
        self.there, self.run_here = True, self.harness.run_id

    @rule(back=st.integers(1, 3))
    def output_of_an_epoch_that_is_over(self, back):
        """A sink has kept its rows, and asks for them when the stream has gone on."""
        now, epoch = self.harness.turn, self.harness.committed
        if not self.there or epoch < 1 or self.run_here != self.harness.run_id:
            return
        self.harness.turn = max(-1, now - 1 - back)
        with pytest.raises(StaleOutputError):
            self.harness.run(epoch - 1, [[1]])
        self.harness.turn = now

    @rule(batches=EPOCH)
    def table_read_while_an_epoch_is_under_way(self, batches):
        if not self.there:
            return
        before = self.harness.read()
        self.harness.run(self.harness.committed + 1, batches)
        assert self.harness.read() == before
        self.epoch(batches, [], [])

    @rule(batches=EPOCH)
    def epoch_whose_state_is_lost_before_it_commits(self, batches):
        """The slot has done its work, then the executor dies, and the driver runs it once more."""
        self.harness.run(self.harness.committed + 1, batches)
        self.harness.lose_state()
        self.there = False
        self.epoch(batches, [], [])

    @rule()
    def lose_state(self):
        self.harness.lose_state()
        self.there = False

    @rule()
    def restart_driver(self):
        """A new driver knows only what is durable."""
        self.harness.restart()

    @rule()
    def stop_and_start(self):
        if self.harness.store is not None and self.harness.committed >= 0 and self.there:
            self.harness.flush()
            self.harness.lose_state()
            self.there = False

    @invariant()
    def within_bound(self):
        if not self.there:
            return
        counts = self.harness.counts()
        error = sum(
            abs(self.truth[k] - counts.get(k, 0)) for k in self.truth.keys() | counts.keys()
        )
        spent = self.harness.ledger.bound().spent
        assert error <= spent, f"off by {error}, {spent} was reported"
        assert spent <= self.policy.budget.max_state_error

    def teardown(self):
        self.harness.close()
        shutil.rmtree(self.root, ignore_errors=True)


class ExactSlotMachine(SlotMachine):
    policy = tether.MiniBatch()


class CarelessSlotMachine(SlotMachine):
    policy = tether.NoTolerance()


TestApproximate = SlotMachine.TestCase
TestExact = ExactSlotMachine.TestCase
TestCareless = CarelessSlotMachine.TestCase
for case in (TestApproximate, TestExact, TestCareless):
    case.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
del case  # pytest would collect it once more


@pytest.fixture
def harness(tmp_path):
    harness = Harness(tether.Approximate(10), tmp_path)
    yield harness
    harness.close()


def test_a_sink_that_takes_its_output_and_then_a_part_of_it_costs_nothing(harness):
    """Its second action stops the slot's task in the middle of an epoch that was done."""
    for epoch in range(6):
        status = harness.run(epoch, [[1] * 3, [2] * 3])
        harness.run(epoch, [[1] * 3, [2] * 3], stop_after=1)
        harness.commit(status)
        harness.turn += 1
        assert status.recovery is None
    assert harness.counts() == {1: 18, 2: 18}


def test_a_second_look_gives_what_the_operator_made_of_a_loss(harness):
    """Rows of a recovered slot hold its compensation, every time they are asked for."""
    harness.blob = pickle.dumps(Compensating())
    harness.commit(harness.run(0, [[1] * 4]))
    harness.lose_state()
    harness.turn += 1
    status = harness.run(1, [[2]])
    first = harness.output
    assert untimed(harness.run(1, [[2]])) == untimed(status)
    assert harness.output == first
    assert {row["k"] for row in first} == {2, 99}


def test_a_table_that_was_asked_for_epochs_ago_is_refused(harness):
    for epoch in range(3):
        harness.commit(harness.run(epoch, [[1]]))
        harness.turn += 1
    assert harness.read() == {1: 3}
    with pytest.raises(StaleOutputError, match="is at epoch 2"):
        harness.read(0)
    harness.lose_state()
    with pytest.raises(StaleOutputError, match="no resident state"):
        harness.read()


def test_a_frame_of_an_epoch_that_is_run_again_is_not_used(harness):
    """The state is lost after the frame of epoch 1 was written and before epoch 1 committed."""
    harness.commit(harness.run(0, [[1] * 8]))
    assert harness.run(1, [[2] * 8]).frame is not None
    harness.lose_state()
    status = harness.run(1, [[2] * 8])
    harness.commit(status)
    assert status.recovery is not None
    assert status.recovery.backup_epoch == 0
    assert harness.counts()[2] == 8


def test_the_loss_of_a_recovery_that_dies_is_counted_once(harness):
    harness.commit(harness.run(0, [[1] * 4]))
    harness.lose_state()
    first = harness.run(1, [[2]])
    harness.lose_state()
    second = harness.run(1, [[2]])
    assert (first.failures, second.failures) == (1, 1)
    harness.commit(second)
    harness.lose_state()
    assert harness.run(2, [[2]]).failures == 2


def test_an_unreadable_frame_widens_the_bound_and_says_so(harness):
    harness.commit(harness.run(0, [[1] * 8]))
    status = harness.run(1, [[2] * 9])
    harness.commit(status)
    assert status.frame is not None
    log = harness.root / "backup" / status.frame.ref.name
    damaged = bytearray(log.read_bytes())
    damaged[status.frame.ref.offset + status.frame.ref.length - 40] ^= 0xFF
    log.chmod(0o600)
    log.write_bytes(bytes(damaged))
    harness.lose_state()
    status = harness.run(2, [[3]])
    assert status.recovery is not None
    assert status.recovery.unreadable
    assert status.recovery.extra_bound >= 9
    harness.commit(status)
    counts = harness.counts()
    truth = {1: 8, 2: 9, 3: 1}
    error = sum(abs(truth[key] - counts.get(key, 0)) for key in truth)
    assert 0 < error <= status.recovery.bound


def test_a_failing_task_leaves_the_epoch_to_its_retry(harness, tmp_path):
    harness.commit(harness.run(0, [[1]]))
    fault = Fault(point="after-apply", action="raise", marker=str(tmp_path / "struck"))
    with pytest.raises(RuntimeError, match="on purpose"):
        harness.run(1, [[1]], faults=[fault])
    status = harness.run(1, [[1]], faults=[fault])
    assert status.rolled_back
    harness.commit(status)
    assert harness.counts() == {1: 2}


def test_what_a_torn_backup_cost_is_still_told_by_the_next_driver(tmp_path):
    harness = Harness(tether.Approximate(40), tmp_path)
    for epoch in range(3):
        harness.commit(harness.run(epoch, [[1, 2, 3] * 10]))
    history = harness.store.read_commits().history
    (torn, *_) = history.chain("count", 0, 3)
    log = tmp_path / "backup" / torn.frame.name
    data = bytearray(log.read_bytes())
    data[torn.frame.offset + torn.frame.length // 2] ^= 0xFF
    log.write_bytes(data)
    harness.lose_state()
    status = harness.run(3, [[1]])
    harness.commit(status)
    assert status.recovery.extra_bound == torn.carried > 0
    harness.restart()
    later = harness.ledger.bound()
    assert later.extra == torn.carried
    assert later.spent >= sum((harness.counts().get(k, 0) - 30) for k in (2, 3)) * -1
    harness.close()


def test_an_old_commit_log_is_not_recovered_from(tmp_path):
    """A slot that reads the log as it was a while ago would restore too old a state, and not know."""
    harness = Harness(tether.Approximate(40), tmp_path)
    for epoch in range(4):
        harness.commit(harness.run(epoch, [[1, 2, 3] * 10]))
    harness.log_end = harness.store.read_commits().end
    assert harness.log_end.number == 4
    harness.lose_state()
    faults = [Fault(point="store-read", action="stale", marker=str(tmp_path / "stale"))]
    with pytest.raises(BackupError, match="old commit log"):
        harness.run(4, [[1]], faults=faults)
    status = harness.run(4, [[1]], faults=faults)  # as Spark's next try does
    assert status.recovery.bound <= 20
    harness.close()
