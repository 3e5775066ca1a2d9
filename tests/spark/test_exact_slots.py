"""The exact policies in one slot, without Spark: losses, retries, restarts change no answer."""

from __future__ import annotations

import math
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import settings

import tether
from tether.backup.commitcodec import BEGINNING
from tether.backup.history import CommitHistory
from tether.chaos.faults import Fault
from tether.core.errors import BackupUnreadableError
from tether.core.graph import SlotId
from tether.engine.ports import SystemClock
from tether.engine.query.commit_log import OpenCommitLog, RunIds
from tether.engine.query.snapshot_keeper import SnapshotKeeper
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.residents import ArenaHost, ArenaResident
from tether.engine.writing.background import look
from tether.observe.story import Story
from tether.policies.barrier import Barrier
from tether.policies.upstream_backup import UpstreamBackup
from tether.spark.graph.exactness import keeps_rows
from tether.state.identity import Owner

from .one_slot import Harness
from .test_slot_protocol import SlotMachine

COUNT = SlotId("count", 0)


class ReplayingSlotMachine(SlotMachine):
    policy = UpstreamBackup(0.3, most_items=20)


TestReplay = ReplayingSlotMachine.TestCase
TestReplay.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


class EarlySlotMachine(SlotMachine):
    """Backups that are written in the background, in any order of epochs, retries and losses."""

    policy = tether.Approximate(40, early=0.3, backup_target=0.1)


TestEarly = EarlySlotMachine.TestCase
TestEarly.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


@pytest.fixture
def logging(tmp_path):
    harness = Harness(UpstreamBackup(1.0, of_items=10), tmp_path)
    yield harness
    harness.close()


def test_a_lost_slot_is_given_the_rows_since_its_backup_again(logging):
    logging.commit(logging.run(0, [[1] * 8]))
    backed_up = logging.run(1, [[2] * 4])
    assert backed_up.frame is not None
    logging.commit(backed_up)
    logging.commit(logging.run(2, [[3], [1, 2]]))
    logging.commit(logging.run(3, []))
    logging.lose_state()
    status = logging.run(4, [[3]])
    assert (status.recovery.backup_epoch, status.recovery.rows_replayed) == (1, 3)
    logging.commit(status)
    assert logging.counts() == {1: 9, 2: 5, 3: 2}


def test_a_crash_in_the_middle_of_a_replay_does_no_harm(logging, tmp_path):
    for epoch in range(3):
        logging.commit(logging.run(epoch, [[epoch], [7]]))
    logging.lose_state()
    fault = Fault(point="during-replay", action="raise", marker=str(tmp_path / "struck"))
    with pytest.raises(RuntimeError, match="on purpose"):
        logging.run(3, [[3]], faults=[fault])
    logging.commit(logging.run(3, [[3]], faults=[fault]))
    assert logging.counts() == {0: 1, 1: 1, 2: 1, 3: 1, 7: 3}


def test_rows_are_kept_no_longer_than_a_backup_needs_them(logging):
    from tether.backup.sweeping import sweep

    for epoch in range(12):
        logging.commit(logging.run(epoch, [[1] * 5]))
    history = logging.store.read_commits().history
    sweep(logging.store, history, logging.committed)
    assert len(history.logged_rows("count", 0, -1, 12)) <= 1
    logging.lose_state()
    logging.commit(logging.run(12, []))
    assert logging.counts() == {1: 60}


class SnapshotHarness(Harness):
    """A driver that keeps snapshots of one slot, as the query's runner does."""

    def __init__(self, policy, root):
        super().__init__(policy, root)
        self.story = Story()
        self.commits = OpenCommitLog(self.store, CommitHistory(), BEGINNING)
        self.keeper = SnapshotKeeper(
            policy,
            [COUNT],
            self.story,
            readable=100,
            clock=SystemClock(),
            log=self.commits,
            ids=RunIds("q", "r"),
        )

    def program(self, epoch, purpose="epoch", faults=()):
        program = super().program(epoch, purpose, faults)
        control = msgspec.structs.replace(program.control, snapshot=self.keeper.barrier)
        object.__setattr__(program, "control", control)
        return program

    def epoch(self, batches, faults=()):
        epoch = self.committed + 1
        self.keeper.complete(epoch)
        self.keeper.begin(epoch)
        status = self.run(epoch, batches, faults=faults)
        self.keeper.note(epoch, {COUNT: status}, {})
        self.lineage, self.committed = status.lineage, epoch
        return status

    def complete(self):
        return self.store.read_commits().history.complete_snapshot(self.committed + 1)

    def wait_for_part(self, status_of_epoch):
        """Until the writer has left its note, or died."""
        resident = ArenaResident(self.program(self.committed + 1), 0, Owner.of(0))
        resident.attach()
        work, notes = resident.memory().part, resident.notes
        resident.release()
        while work is not None and look(notes, work) is None:
            pass
        return status_of_epoch


@pytest.fixture
def snapshots(tmp_path):
    made = []

    def make(policy):
        made.append(SnapshotHarness(policy, tmp_path))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


def test_a_slot_goes_on_from_its_part_only_if_that_is_of_the_epoch_before(snapshots):
    slot = snapshots(Barrier(2, mode="sync"))
    for epoch in range(4):
        slot.epoch([[epoch]])
    slot.lose_state()
    with pytest.raises(LostStateError):
        slot.epoch([[4]])
    slot.keeper.give_up("test", 4)
    slot.committed = slot.complete().epoch
    assert slot.committed == 2
    slot.lineage = "none has this"
    status = slot.epoch([[3]])
    assert (status.recovery.exact, status.recovery.backup_epoch) == (True, 2)
    assert slot.counts() == {0: 1, 1: 1, 2: 1, 3: 1}


def test_parts_hold_only_what_changed_since_the_complete_snapshot(snapshots):
    slot = snapshots(Barrier(1, mode="sync"))
    taken = [slot.epoch([list(range(100))] if not epoch else [[epoch]]).part for epoch in range(4)]
    assert [(part.kind, part.entries) for part in taken] == [
        ("full", 100),
        ("partial", 1),
        ("partial", 1),
        ("partial", 1),
    ]


def test_a_part_written_in_the_background_counts_when_a_later_epoch_reports_it(snapshots):
    slot = snapshots(Barrier(3))
    first = slot.wait_for_part(slot.epoch([[1]]))
    assert first.part is not None
    assert first.part_done is None
    second = slot.epoch([[2]])
    assert second.part_done.ref is not None
    assert slot.complete() is None
    slot.epoch([[3]])
    assert slot.complete().epoch == 0
    assert [event.what for event in slot.story.events()] == ["snapshot"]


def test_a_failed_part_gives_its_snapshot_up_and_the_next_is_whole(snapshots, tmp_path):
    slot = snapshots(Barrier(2))
    slot.wait_for_part(slot.epoch([[1, 2, 3]]))
    slot.epoch([[4]])
    fault = Fault(point="during-writing", action="raise", marker=str(tmp_path / "struck"))
    slot.wait_for_part(slot.epoch([[1]], faults=[fault]))
    assert "on purpose" in slot.epoch([[5]]).part_done.failed
    assert [event.what for event in slot.story.events()] == ["snapshot", "given-up"]
    assert slot.complete().epoch == 0
    assert slot.epoch([[6]]).part.kind == "full"


def test_a_writer_that_dies_is_seen(snapshots):
    slot = snapshots(Barrier(2))
    slot.wait_for_part(slot.epoch([[1]]))
    resident = ArenaResident(slot.program(1), 0, Owner.of(0))
    resident.attach()
    work, notes = resident.memory().part, resident.notes
    resident.release()
    for note in notes.parent.glob(f"{notes.name}.*"):
        note.unlink()
    dead = msgspec.structs.replace(work, writer=(work.writer[0], "another start"))
    assert "died" in look(notes, dead).failed
    assert look(notes, work) is None


def test_flushing_writes_a_complete_snapshot_of_the_last_epoch(snapshots):
    slot = snapshots(Barrier(50))
    for epoch in range(5):
        slot.epoch([[epoch]])
    slot.keeper.begin_last(4)
    from tether.engine.slot.beside import SlotBesideEpochs

    work = SlotBesideEpochs(slot.program(4, "flush"), 0, "attempt", ArenaHost(Owner.of(0)))
    work.flush()
    slot.keeper.note(4, {COUNT: work.status}, {})
    slot.keeper.complete(5)
    assert slot.complete().epoch == 4
    slot.lineage = work.status.lineage
    slot.lose_state()
    assert slot.epoch([[9]]).recovery.exact
    assert slot.counts() == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 9: 1}


def test_mini_batch_is_exact_also_after_epochs_that_changed_nothing(tmp_path):
    slot = Harness(tether.MiniBatch(), tmp_path)
    slot.commit(slot.run(0, [[1, 2]]))
    for epoch in range(1, 4):
        slot.commit(slot.run(epoch, []))
    slot.lose_state()
    status = slot.run(4, [[1]])
    assert status.recovery.exact
    assert status.failures == 0
    slot.close()


def test_mini_batch_never_goes_on_from_a_damaged_backup(tmp_path):
    """What the damaged frame held may be in no other: an exact policy has no bound to widen."""
    slot = Harness(tether.MiniBatch(), tmp_path)
    slot.commit(slot.run(0, [list(range(50))]))
    damaged = slot.run(1, [[1, 2]])
    slot.commit(damaged)
    log = tmp_path / "backup" / damaged.frame.ref.name
    data = bytearray(log.read_bytes())
    data[damaged.frame.ref.offset + damaged.frame.ref.length - 40] ^= 0xFF
    log.write_bytes(data)
    slot.lose_state()
    with pytest.raises(BackupUnreadableError, match="cannot be restored exactly"):
        slot.run(2, [[1]])
    slot.close()


def restored(harness, epoch):
    """Counts that the committed frames give to who runs ``epoch``."""
    from tether.backup.recovery import recover_chain

    history = harness.store.read_commits().history
    counts = {}
    for frame in recover_chain(harness.store, history, "count", 0, epoch).frames:
        for batch in frame.parts["seen"]:
            counts.update(zip(batch["k"].to_pylist(), batch["n"].to_pylist(), strict=True))
    return counts


def test_an_early_backup_counts_only_when_an_epoch_has_reported_it(tmp_path):
    slot = Harness(tether.Approximate(40, early=0.5, backup_target=0.0), tmp_path)
    theta = 20
    begun = slot.run(0, [[1] * 12])
    slot.commit(begun)
    assert begun.frame is None
    assert begun.divergence == 12
    resident = ArenaResident(slot.program(1), 0, Owner.of(0))
    resident.attach()
    early, notes = resident.memory().early, resident.notes
    resident.release()
    while look(notes, early.work) is None:
        pass
    assert restored(slot, 1) == {}
    reported = slot.run(1, [[1] * 3])
    slot.commit(reported)
    assert reported.frame.cause == "theta"
    assert restored(slot, 2) == {1: 12}
    assert reported.divergence == 3
    # Far above θ at once: the epoch writes its own and does not wait for anybody.
    at_once = slot.run(2, [[2] * 50])
    slot.commit(at_once)
    assert at_once.frame is not None
    assert at_once.divergence <= theta
    counts, durable = slot.counts(), restored(slot, 3)
    assert sum(abs(counts[key] - durable.get(key, 0)) for key in counts) == at_once.divergence
    slot.close()


def test_an_early_backup_of_an_earlier_driver_never_counts(tmp_path):
    """A new driver removes all frames that no record names, that of the early backup among them."""
    from tether.backup.sweeping import sweep

    slot = Harness(tether.Approximate(40, early=0.5, backup_target=0.0), tmp_path)
    slot.commit(slot.run(0, [[1] * 12]))
    resident = ArenaResident(slot.program(1), 0, Owner.of(0))
    resident.attach()
    early, notes = resident.memory().early, resident.notes
    resident.release()
    while look(notes, early.work) is None:
        pass
    sweep(slot.store, slot.store.read_commits().history, 0, orphans=True)
    slot.restart()
    status = slot.run(1, [[1] * 3])
    slot.commit(status)
    assert (status.frame, status.divergence) == (None, 15)
    slot.lose_state()
    recovered = slot.run(2, [[1]])
    assert recovered.recovery.unreadable == []
    assert recovered.recovery.bound >= 15
    slot.close()


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (tether.MiniBatch(), True),
        (UpstreamBackup(), True),
        (tether.Approximate(100), True),  # none of its items may be lost, by default
        (tether.Approximate(100, max_lost_items=50), True),
        (tether.Approximate(100, max_lost_items=math.inf), False),
        (tether.NoTolerance(), False),
    ],
)
def test_rows_that_come_once_are_kept_where_a_limit_of_lost_items_is_promised(policy, kept):
    for replays, expected in ((False, kept), (True, False)):
        query = SimpleNamespace(
            operators={"count": SimpleNamespace(policy=policy)},
            flow=SimpleNamespace(sources=[SimpleNamespace(replays=replays)]),
        )
        assert keeps_rows(query) == expected
