"""Copies of slots on the shipped runtime, in one process with executors that are really killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StructType

import tether
from tether.chaos.faults import Fault, is_holding, release
from tether.core.errors import BadValueError
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])
SLOTS = 3


class Sums(tether.Operator):
    """Adds up numbers whose sum depends on their order, one by one; promises nothing of it."""

    output = StructType().add("k", LongType()).add("total", DoubleType())

    def setup(self, state):
        self.sums = state.table("sums", {"k": pa.int64()}, {"total": "float64"})

    def process(self, batch, out):
        for at in range(batch.num_rows):
            row = batch.slice(at, 1)
            self.sums.add(row.select(["k"]), total=row["v"])

    def on_epoch_end(self, out):
        out.emit(self.sums.rows_to_batch(self.sums.changed()))


def epochs(number):
    random = np.random.default_rng(3)
    return [
        pa.RecordBatch.from_pydict(
            {
                "k": random.integers(0, 9, 40),
                "v": random.normal(size=40) * 10.0 ** random.integers(-8, 9, 40),
            },
            SCHEMA,
        )
        for _ in range(number)
    ]


class Run:
    def __init__(self, work, policy, faults=(), *, executors=3, rows=None, slots=SLOTS):
        self.session = LocalSession(home, executors=executors, faults=faults)
        self.source = EpochSource(self.session, rows or epochs(16), SCHEMA)
        self.given = {}

        def keep(rows, epoch):
            self.given.setdefault(epoch, []).append(
                {row["k"]: row["total"] for row in rows.collect()}
            )

        self.query = (
            tether.stream(self.source, replays=True)
            .apply(Sums(), key="k", parallelism=slots, name="sums")
            .start(
                keep,
                tolerance=policy,
                backup=str(work / "backup"),
                checkpoint=str(work / "checkpoint"),
                arena_dir=str(work / "arena"),
                arena_scope="executor",
                faults=faults,
            )
        )

    def finish(self):
        try:
            self.query.processAllAvailable()
            answer = {row["k"]: row["total"] for row in self.query.table("sums").collect()}
            self.last = self.query.copies()
            self.query.stop()
        finally:
            self.session.stop()
        return answer

    def told(self, what):
        return [event for event in self.query.story() if event.what == what]


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def strike(work, epoch, slot, point="halfway"):
    marker = str(work / f"struck-{epoch}-{slot}-{point}")
    return Fault(point=point, action="executor", marker=marker, epoch=epoch, slot=slot)


def policy(share=1.0, interval=40):
    return tether.PartiallyActive(share=share, snapshots=tether.Barrier(interval))


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The answer without failures, and what each epoch gave."""
    run = Run(tmp_path_factory.mktemp("clean"), policy())
    answer = run.finish()
    assert run.told("promoted") == run.told("copies-lost") == []
    return answer, run.given


@pytest.mark.parametrize("point", ["before-attach", "halfway", "after-apply", "after-commit"])
def test_a_copy_speaks_in_the_same_epoch_with_the_same_bits(tmp_path, clean, point):
    killed = strike(tmp_path, 4, 1, point)
    run = Run(tmp_path, policy(), [killed])
    answer = run.finish()
    assert Path(killed.marker).exists()
    assert answer == clean[0]  # every bit of every sum, though rows reach seats in any order
    assert {e: given[-1] for e, given in run.given.items()} == {
        e: given[-1] for e, given in clean[1].items()
    }
    (promoted,) = run.told("promoted")
    assert (promoted.epoch, promoted.detail["slots"]) == (4, [1])
    assert run.told("rewound") == []
    # Its executor held a copy, too; both are made again, and are apart from their slots.
    (lost,) = run.told("copies-lost")
    filled = {slot for event in run.told("copied")[1:] for slot in event.detail["slots"]}
    assert filled >= set(lost.detail["slots"])


def test_right_after_a_snapshot_lost_slots_are_restored_and_nobody_is_promoted(tmp_path, clean):
    chosen = tether.PartiallyActive(share=1.0, snapshots=tether.Barrier(4, mode="sync"))
    run = Run(tmp_path, chosen, [strike(tmp_path, 5, 1, "before-attach")])
    assert run.finish() == clean[0]
    assert {(one.epoch, one.slot) for one in run.told("recovery")} == {(5, 1)}
    assert run.told("promoted") == run.told("rewound") == []


def test_losses_one_after_the_other_are_all_covered(tmp_path, clean):
    faults = [strike(tmp_path, 3, 0), strike(tmp_path, 9, 1), strike(tmp_path, 14, 0)]
    run = Run(tmp_path, policy(), faults)
    assert run.finish() == clean[0]
    assert all(Path(one.marker).exists() for one in faults)
    assert run.told("rewound") == []
    assert len(run.told("promoted")) == 3


def test_without_order_copies_would_differ(tmp_path, clean, monkeypatch):
    """What the order is for: the same rows in another order give other bits."""
    monkeypatch.setattr(Sums, "repeats", True)  # a promise that does not hold
    run = Run(tmp_path, policy(), [strike(tmp_path, 4, 1)])
    answer = run.finish()
    assert answer != clean[0]
    assert answer == pytest.approx(clean[0], rel=1e-3, abs=1e-3)


def test_slots_without_a_copy_go_back_as_under_barrier(tmp_path, clean):
    run = Run(tmp_path, policy(share=0.34, interval=3), [strike(tmp_path, 8, 1)])
    assert run.finish() == clean[0]
    assert run.told("copied")[0].detail["slots"] == [0]
    assert len(run.told("rewound")) == 1
    assert run.told("promoted") == []


@pytest.mark.parametrize("how", ["skip", "stale"])
def test_slots_without_a_copy_are_left_out_and_the_others_go_on_at_once(tmp_path, clean, how):
    """An executor takes a slot with a copy, which speaks at once, and one without, which is missing."""
    chosen = tether.PartiallyActive(
        copies=2, snapshots=tether.Barrier(4, mode="sync"), meanwhile=how
    )
    faults = [strike(tmp_path, 10, 2)]
    held = Fault(
        point="during-recovery",
        action="hold",
        marker=str(tmp_path / "held"),
        epoch=9,
        slot=1,
    )
    run = Run(tmp_path, chosen, [*faults, held], executors=2, slots=4)
    work = threading.Thread(target=run.query.processAllAvailable, daemon=True)
    work.start()
    wait_for(lambda: is_holding(held))  # the twin; meanwhile main goes on
    # What is alive, by the rows that slots gave in the last epoch before the loss.
    gave = Counter(home({"k": k}, ["k"], 4) for k in clean[1][9][-1])
    assert run.query.healing()["fidelity"] == pytest.approx(1 - gave[2] / gave.total())
    release(held)
    work.join(60)
    assert run.finish() == clean[0]
    (promoted,) = run.told("promoted")
    assert (promoted.epoch, promoted.detail["slots"]) == (10, [0])
    (tentative,) = run.told("tentative")
    assert (tentative.epoch, tentative.detail["slots"]) == (10, 1)
    assert len(run.told("taken-over")) == 1
    assert run.told("rewound") == []
    assert {e: given[-1] for e, given in run.given.items()} == {
        e: given[-1] for e, given in clean[1].items()
    }
    # The twin has copies of its own, which are ready when it takes over; the page shows them.
    told = run.query.feed.standing.copies
    assert {(one.slot, one.speaks) for one in told} == {
        (0, True),
        (0, False),
        (1, True),
        (1, False),
    }
    assert {seat["lag"] for seat in run.last} == {0}


def test_all_executors_at_once(tmp_path, clean):
    """Nobody is left to speak: all go back to the newest snapshot, copies too."""
    faults = [strike(tmp_path, 8, slot) for slot in range(SLOTS)]
    run = Run(tmp_path, policy(interval=3), faults)
    assert run.finish() == clean[0]
    assert len(run.told("rewound")) >= 1


def skewed(number, heavy):
    """Rows of which most are of one slot."""
    keys = {
        slot: [k for k in range(90) if home({"k": k}, ["k"], SLOTS) == slot] for slot in range(3)
    }
    ks = keys[heavy][:8] + [keys[slot][0] for slot in range(3)]
    rows = {"k": ks, "v": [0.1 * k for k in ks]}
    return [pa.RecordBatch.from_pydict(rows, SCHEMA) for _ in range(number)]


def test_copies_follow_the_rates_of_slots(tmp_path):
    """A copy moves to the slot that most rows go to by now, and is one that can speak."""
    rows = skewed(12, 0) + skewed(30, 2)
    still = tether.PartiallyActive(copies=1, snapshots=tether.Barrier(40))
    clean = Run(tmp_path / "clean", still, rows=rows)
    right = clean.finish()
    assert clean.told("copy-moved") == []
    moving = tether.PartiallyActive(copies=1, adapt=0.2, snapshots=tether.Barrier(40))
    run = Run(tmp_path / "moving", moving, [strike(tmp_path, 38, 2)], rows=rows)
    assert run.finish() == right
    (told,) = run.told("replanned-copies")
    assert 12 <= told.epoch <= 32
    assert told.detail["then"] - told.detail["fidelity"] > 0.2
    (moved,) = run.told("copy-moved")
    assert (moved.detail["from_slot"], moved.detail["to_slot"]) == (["sums", 0], ["sums", 2])
    (promoted,) = run.told("promoted")
    assert (promoted.epoch, promoted.detail["slots"]) == (38, [2])
    assert run.told("rewound") == []
    # Of the slot that has no copy any more nothing is left; of the killed executor its arena is.
    left = {path.name.split("-")[1] for path in (tmp_path / "moving" / "arena").glob("*/*")}
    assert {int(number) % SLOTS for number in left} <= {2}


def test_one_executor_is_refused(tmp_path):
    with pytest.raises(tether.TetherError, match="cannot be kept apart"):
        Run(tmp_path, policy(), executors=1).finish()


@pytest.mark.parametrize(
    "options",
    [{}, {"copies": 1, "share": 0.5}, {"copies": 0}, {"share": 1.5}, {"copies": 1, "planner": "x"}],
)
def test_settings_that_cannot_be(options):
    with pytest.raises(BadValueError):
        tether.PartiallyActive(**options)
