"""Copies of slots on the shipped runtime, in one process with executors that are really killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StructType

import tether
from tether.chaos.faults import Fault
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
    def __init__(self, work, policy, faults=(), executors=3, number=16):
        self.session = LocalSession(home, executors=executors, faults=faults)
        self.source = EpochSource(self.session, epochs(number), SCHEMA)
        self.given = {}

        def keep(rows, epoch):
            self.given.setdefault(epoch, []).append(
                {row["k"]: row["total"] for row in rows.collect()}
            )

        self.query = (
            tether.stream(self.source, replays=True)
            .apply(Sums(), key="k", parallelism=SLOTS, name="sums")
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
            self.query.stop()
        finally:
            self.session.stop()
        return answer

    def told(self, what):
        return [event for event in self.query.story() if event.what == what]


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


def test_all_executors_at_once(tmp_path, clean):
    """Nobody is left to speak: all go back to the newest snapshot, copies too."""
    faults = [strike(tmp_path, 8, slot) for slot in range(SLOTS)]
    run = Run(tmp_path, policy(interval=3), faults)
    assert run.finish() == clean[0]
    assert len(run.told("rewound")) >= 1


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
