"""Single steps of a slot's protocol, each by itself, without Spark: what must not be left out."""

from __future__ import annotations

import dataclasses
import os
import uuid
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

import tether
from tether.chaos.faults import Fault
from tether.core.errors import ArenaError
from tether.core.windows import Hopping
from tether.engine.messages import StreamClock
from tether.engine.query.catching_up import CatchUp
from tether.engine.query.log_opening import _has_bound
from tether.engine.query.rewinder import Rewinder
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.epoch import SlotEpoch
from tether.engine.slot.residents import ArenaHost, _kept, attached
from tether.engine.slot.windows import ended_windows
from tether.policies.approximate import Approximate
from tether.state.identity import Owner
from tether.testing.inprocess.writers import settle_writers

from .one_slot import Count, Harness

ME = Owner.of(os.getpid())


@pytest.fixture
def made(tmp_path):
    harnesses = []

    def make(policy, operator=None):
        harnesses.append(Harness(policy, tmp_path / str(len(harnesses)), operator))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.close()


def test_an_epoch_that_would_end_above_its_threshold_is_not_committed(made, monkeypatch):
    """A policy that forgets to ask for the backup stands for any defect that leaves too much."""
    harness = made(Approximate(10))
    harness.epoch([[1]])
    monkeypatch.setattr(Approximate, "_backup", lambda *_: ())
    with pytest.raises(ArenaError, match="would end epoch 1 with divergence"):
        harness.run(1, [[1] * 8])


def test_an_epoch_that_is_run_again_after_its_end_is_rolled_back_first(made):
    harness = made(Approximate(10))
    harness.epoch([[1]])
    harness.run(1, [[1]])  # and the driver dies before Spark commits it
    harness.turn += 1
    status = harness.run(1, [[1]])
    assert (status.rolled_back, status.recovery) == (True, None)
    harness.commit(status)
    assert harness.counts() == {1: 2}


def test_half_an_epoch_is_rolled_back_first(made):
    harness = made(Approximate(10), Echo())
    harness.epoch([[1]])
    harness.run(1, [[1], [1]], stop_after=1)
    status = harness.run(1, [[1], [1]])
    assert (status.rolled_back, status.recovery) == (True, None)
    harness.commit(status)
    assert harness.counts() == {1: 3}


class Echo(Count):
    """Gives something at once, so that a task can be dropped in the middle."""

    def process(self, batch, out):
        super().process(batch, out)
        out.emit(pa.RecordBatch.from_pydict({"k": batch["k"], "n": [0] * batch.num_rows}))


def test_a_state_of_another_history_is_lost(made):
    harness = made(Approximate(10))
    harness.epoch([[1]])
    harness.lineage = "another"
    assert harness.run(1, [[1]]).recovery is not None


def test_a_state_that_lacks_an_epoch_is_lost(made):
    harness = made(Approximate(10))
    harness.epoch([[1]])
    assert harness.run(2, [[1]]).recovery is not None


def test_a_backup_is_called_whole_only_where_nothing_is_missing(made):
    harness = made(Approximate(100))
    assert not harness.epoch([[1]]).exact
    assert made(tether.MiniBatch()).epoch([[1]]).exact


def test_what_goes_up_and_down_again_needs_no_backup(made):
    harness = made(Approximate(10), UpAndDown())
    status = harness.epoch([[1]])
    assert (status.frame, status.divergence) == (None, 0.0)


class UpAndDown(Count):
    def process(self, batch, out):
        self.seen.add(batch, n=8)
        self.seen.add(batch, n=-8)


def test_an_early_backup_that_fails_saves_nothing(made, tmp_path):
    harness = made(Approximate(10, early=0.5, backup_target=0.0))
    down = Fault(point="store-append", action="fail", marker=str(tmp_path / "down"))
    harness.commit(harness.run(0, [[1] * 4], faults=[down]))
    settle_writers([])
    assert (tmp_path / "down").exists()
    harness.turn += 1
    status = harness.run(1, [[]])
    assert (status.frame, status.divergence) == (None, 4.0)


def test_an_early_backup_counts_only_once_it_is_written(made, tmp_path):
    harness = made(Approximate(10, early=0.5, backup_target=0.0))
    held = Fault(point="during-writing", action="hold", marker=str(tmp_path / "held"))
    harness.commit(harness.run(0, [[1] * 4], faults=[held]))
    harness.turn += 1
    status = harness.run(1, [[]], faults=[held])
    assert (status.frame, status.divergence) == (None, 4.0)
    (tmp_path / "held.released").touch()
    settle_writers([])
    harness.commit(status)
    harness.turn += 1
    status = harness.run(2, [[]])
    assert status.frame is not None
    assert status.divergence == 0.0


def test_a_state_whose_restore_was_cut_off_is_no_state(made):
    harness = made(Approximate(10))
    harness.epoch([[1]])
    with attached(harness.program(1), 0, ME) as resident:
        resident.create()  # and the process dies
    _kept.clear()
    status = harness.run(1, [[1]])
    assert "restoring" in status.recovery.reason
    assert status.recovery.loss is not None


def test_a_slot_whose_backups_have_gaps_gets_a_whole_one(made):
    harness = made(Approximate(10))
    harness.epoch([[1] * 8, [2] * 8])
    partial = harness.epoch([[1] * 8])
    assert partial.frame.kind == "partial"
    program = harness.program(2)
    control = msgspec.structs.replace(program.control, in_doubt=frozenset([0]))
    work = SlotEpoch(
        dataclasses.replace(program, control=control), 0, uuid.uuid4().hex, ArenaHost(ME)
    )
    list(work.run(iter([pa.RecordBatch.from_pydict({"k": [1] * 8})])))
    assert work.status.frame.kind == "full"


def test_a_frame_says_what_it_carries(made):
    frame = made(Approximate(10)).epoch([[1] * 8]).frame
    assert frame.carried == 8.0


def test_only_the_divergence_of_the_epoch_before_prices_a_loss(made):
    harness = made(Approximate(100))
    harness.epoch([[1]])
    assert harness.ledger.divergences(0) == {0: 1.0}
    assert harness.ledger.divergences(1) == {}
    harness.epoch([[1] * 3])
    harness.restart()  # the next driver knows what is durable, and no more
    harness.lose_state()
    assert harness.run(2, [[1]]).recovery.bound == 50.0


def test_windows_by_items_end_once():
    clock, four = StreamClock(), Hopping(4, "items")
    assert [w.end for w in ended_windows(four, 0, 3, 2, clock)] == [4.0]
    assert ended_windows(four, 1, 5, 1, clock) == []
    assert [w.end for w in ended_windows(four, 2, 6, 7, clock)] == [8.0, 12.0]


def test_who_catches_up_needs_the_rows_of_the_first_time():
    behind = CatchUp(frozenset(), 5, {4: ["a"], 5: ["b"]})
    runner = SimpleNamespace(catching_up=SimpleNamespace(now=behind))
    rewinder = Rewinder(runner, lambda: SimpleNamespace(rows_of=lambda _: ["a"]))
    rewinder.check_rows(4)
    rewinder.check_rows(6)  # nobody has had that one
    with pytest.raises(LostStateError, match="cut into other epochs"):
        rewinder.check_rows(5)


def test_only_a_bound_can_be_widened():
    assert _has_bound([Approximate(1)])
    for policy in (tether.MiniBatch(), tether.UpstreamBackup(), tether.Barrier(1)):
        assert not _has_bound([Approximate(1), policy])
