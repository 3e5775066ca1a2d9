"""The epoch protocol of a slot without Spark: any order of epochs, retries, losses and restarts.

A reference counts the rows of committed epochs. Whatever happens, the slot's state must differ from
it by no more than the losses that were reported, and those must sum to no more than Θ.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import tether
from tether.backup.commits import CommitRecord
from tether.backup.opening import StoreAddress
from tether.core.bound import Loss, SlotFacts, bound
from tether.core.errors import BackupError
from tether.core.policy import Placement
from tether.operator import Operator
from tether.spark.commit_entries import slot_commit
from tether.spark.control import GENESIS, SlotControl
from tether.spark.faults import Fault
from tether.spark.ledger import Ledger
from tether.spark.program import Program
from tether.spark.slot import SlotEpoch
from tether.spark.slot_beside import SlotBesideEpochs
from tether.state.identity import Owner

OUTPUT = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Count(Operator):
    output = "k long, n long"

    def setup(self, state):
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.seen.add(batch, n=1)

    def on_epoch_end(self, out):
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class Harness:
    """A driver for one slot: it does what ``EpochDriver`` does, without Spark."""

    def __init__(self, policy, root: Path) -> None:
        self.policy, self.root = policy, root
        self.address = StoreAddress(url=str(root / "backup")) if policy.keeps_backups else None
        self.store = self.lock = None
        self.blob = pickle.dumps(Count())
        self.committed = -1
        self.newest_record: tuple[int, str] | None = None
        self.losses: list[Loss] = []
        self.lineage: str | None = GENESIS
        if self.address is not None:
            self.store = self.address.open()
            self.lock = self.store.lock("test")

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def program(self, epoch, purpose="epoch", faults=()):
        lineages = None if self.lineage is None else {0: self.lineage}
        control = SlotControl(
            query="q",
            run="r",
            operator="count",
            slots=1,
            epoch=epoch,
            first_epoch=0,
            fingerprint="f",
            lineages=lineages,
            purpose=purpose,
            arena_dir=str(self.root / "arena"),
            newest_record=self.newest_record,
        )
        return Program(
            control=control,
            operator=self.blob,
            policy=self.policy,
            placement=Placement(copies=1),
            store=self.address,
            output_schema=OUTPUT,
            faults=tuple(faults),
        )

    def run(self, epoch, batches, *, stop_after=None, faults=()):
        """Run the slot's task; ``stop_after`` batches of output it is dropped, as by ``limit``."""
        work = SlotEpoch(
            self.program(epoch, faults=faults), 0, uuid.uuid4().hex, Owner.of(os.getpid())
        )
        rows = [pa.RecordBatch.from_pydict({"k": keys}) for keys in batches]
        if stop_after is not None:
            stream = work.run(iter(rows))
            next(stream, None)
            stream.close()
            return None
        for _ in work.run(iter(rows)):
            pass
        return work.status

    def commit(self, status):
        if self.store is not None and (status.frame or status.recovery):
            record = CommitRecord(
                epoch=status.epoch, run="r", slots={"count/0": slot_commit(status)}
            )
            self.store.append_commit(record)
        if status.recovery is not None and not status.recovery.exact:
            self.losses.append(Loss(epoch=status.epoch, at_most=status.recovery.bound))
        self.lineage = status.lineage
        self.committed = status.epoch

    def flush(self):
        work = SlotBesideEpochs(
            self.program(self.committed, "flush"), 0, uuid.uuid4().hex, Owner.of(os.getpid())
        )
        work.flush()
        if work.status is not None:
            slots = {"count/0": slot_commit(work.status)}
            record = CommitRecord(epoch=self.committed, run="r", slots=slots, amends=True)
            self.store.append_commit(record)
            self.lineage = work.status.lineage

    def counts(self):
        from tether.spark.residents import attached

        with attached(self.program(self.committed + 1), 0, Owner.of(os.getpid())) as resident:
            batches = resident.state["seen"].batches()
            return {row["k"]: row["n"] for batch in batches for row in batch.to_pylist()}

    def lose_state(self):
        shutil.rmtree(self.root / "arena", ignore_errors=True)


KEYS = st.lists(st.integers(0, 9), min_size=1, max_size=12)
EPOCH = st.lists(KEYS, max_size=3)


class SlotMachine(RuleBasedStateMachine):
    policy = tether.Approximate(40)

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tether-test-"))
        self.harness = Harness(self.policy, self.root)
        self.truth: Counter[int] = Counter()
        self.there = False

    @rule(batches=EPOCH, tries=st.integers(0, 2))
    def epoch(self, batches, tries):
        """An epoch, perhaps after attempts that ended too early or were not committed."""
        epoch = self.harness.committed + 1
        for attempt in range(tries):
            self.harness.run(epoch, batches, stop_after=None if attempt else 1)
        self.harness.commit(self.harness.run(epoch, batches))
        for keys in batches:
            self.truth.update(keys)
        self.there = True

    @rule(batches=EPOCH)
    def epoch_whose_state_is_lost_before_it_commits(self, batches):
        """The slot has done its work, then the executor dies, and the driver runs it once more."""
        self.harness.run(self.harness.committed + 1, batches)
        self.harness.lose_state()
        self.there = False
        self.epoch(batches, 0)

    @rule()
    def lose_state(self):
        self.harness.lose_state()
        self.there = False

    @rule()
    def restart_driver(self):
        """A new driver knows only what is durable."""
        if self.harness.store is not None:
            facts = self.harness.store.read_commits().history.slot_facts(
                "count", 0, self.harness.committed + 1
            )
            self.harness.lineage = facts.lineage or GENESIS

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
        facts = SlotFacts(
            operator="count", slot=0, divergence=0.0, theta=0.0, losses=tuple(self.harness.losses)
        )
        spent = bound([facts], budget=self.policy.budget).spent
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


@pytest.fixture
def harness(tmp_path):
    harness = Harness(tether.Approximate(10), tmp_path)
    yield harness
    harness.close()


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
    assert status.extra == status.recovery.extra_bound == torn.carried > 0
    later = Ledger("count", 1, harness.policy, Placement(copies=1))
    later.resume(harness.store.read_commits().history, 4)
    assert later.bound().extra == torn.carried
    assert later.bound().spent >= sum((harness.counts().get(k, 0) - 30) for k in (2, 3)) * -1
    harness.close()


def test_an_old_commit_log_is_not_recovered_from(tmp_path):
    """A slot that reads the log as it was a while ago would restore too old a state, and not know."""
    harness = Harness(tether.Approximate(40), tmp_path)
    for epoch in range(4):
        harness.commit(harness.run(epoch, [[1, 2, 3] * 10]))
    newest = harness.store.read_commits().history.newest_record
    assert newest == (3, "r")
    harness.lose_state()
    faults = [Fault(point="store-read", action="stale", marker=str(tmp_path / "stale"))]
    harness.newest_record = newest
    with pytest.raises(BackupError, match="old commit log"):
        harness.run(4, [[1]], faults=faults)
    status = harness.run(4, [[1]], faults=faults)  # as Spark's next try does
    assert status.recovery.bound <= 20
    harness.close()
