"""Another number of slots at a restart: nothing is lost, nothing doubled, and the bound stays true."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructType

import tether
from tether.backup.local import LocalStore
from tether.chaos.faults import Fault
from tether.core.errors import ChangedProgramError, TetherError
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession

SCHEMA = pa.schema([("k", pa.int64())])


class Count(tether.Operator):
    """Counts rows, and remembers which keys came."""

    output = StructType().add("k", LongType()).add("n", LongType())
    disjoint = True

    def __init__(self, divergence="l1", *, total=False):
        self._divergence, self._total = divergence, total

    def setup(self, state):
        self.seen = state.table(
            "seen", {"k": pa.int64()}, {"n": "int64"}, divergence=self._divergence
        )
        if self._divergence == "l1":
            self.known = state.set("known", {"k": pa.int64()})
        if self._total:
            self.total = state.number("total")

    def process(self, batch, out):
        self.seen.add(batch.select(["k"]), n=1)
        if self._divergence == "l1":
            self.known.add(batch.select(["k"]))

    def on_epoch_end(self, out):
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class Life:
    """A query that is stopped and started, with other numbers of slots."""

    def __init__(self, work, epochs):
        self.work, self.epochs, self.read = Path(work), epochs, 0

    def start(self, slots, *, operator=None, then=None, faults=(), executors=0, **options):
        self.session = LocalSession(home, faults=faults, executors=executors)
        rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in self.epochs]
        self.source = EpochSource(self.session, rows, SCHEMA)
        self.source.available = self.read
        stream = tether.stream(self.source, replays=True)
        stream = stream.apply(operator or Count(), key="k", parallelism=slots)
        if then is not None:
            stream = stream.apply(then, key="k", parallelism=slots)
        return stream.start(
            None,
            faults=faults,
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            **{
                "tolerance": tether.Approximate(60),
                "backup": str(self.work / "backup"),
                "allow_changed": ["slots"],
                **options,
            },
        )

    def go_on(self, query, epochs):
        self.read = min(self.read + epochs, len(self.epochs))
        self.source.available = self.read
        query.processAllAvailable()

    def truth(self):
        return Counter(key for keys in self.epochs[: self.read] for key in keys)


def counted(query):
    rows = query.table("seen").collect()
    assert len({row["k"] for row in rows}) == len(rows), "a key is in two slots"
    return {row["k"]: row["n"] for row in rows}


def wrong_by(found, truth, divergence):
    errors = [abs(found.get(key, 0) - truth.get(key, 0)) for key in {*found, *truth}]
    return max(errors, default=0) if divergence == "max" else sum(errors)


epochs = st.lists(st.lists(st.integers(0, 25), max_size=25), min_size=8, max_size=8)
steps = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.booleans()), min_size=2, max_size=4
)


def live_through(rows, lives, how, theta):
    """Restart with other numbers of slots, lose slots, and look at the answer each time."""
    with tempfile.TemporaryDirectory() as work:
        life, losses = Life(work, rows), 0
        tolerance = tether.Approximate(theta)
        for number, (slots, runs, loses) in enumerate(lives):
            faults = []
            if loses and life.read < len(rows):
                faults = [
                    Fault(
                        point="before-attach",
                        action="forget",
                        epoch=life.read + runs - 1,
                        slot=slots - 1,
                        marker=f"{work}/lost-{number}",
                    )
                ]
            query = life.start(slots, operator=Count(how), faults=faults, tolerance=tolerance)
            life.go_on(query, runs)
            losses += sum(Path(fault.marker).exists() for fault in faults)
            if query.slots():
                bound = query.bound()
                assert wrong_by(counted(query), life.truth(), how) <= bound.spent
                assert bound.spent < math.inf
                if not losses:
                    assert bound.spent == 0
            query.stop()
            life.session.stop()


HISTORIES = epochs, steps, st.sampled_from(["l1", "max"]), st.sampled_from([0, 3, 60, 400])


@settings(max_examples=8)
@given(*HISTORIES)
def test_random_histories_of_rescaling_and_losses_stay_within_the_bound(rows, lives, how, theta):
    live_through(rows, lives, how, theta)


@pytest.mark.long
@settings(max_examples=200)
@given(*HISTORIES)
def test_many_random_histories_of_rescaling(rows, lives, how, theta):
    live_through(rows, lives, how, theta)


@pytest.mark.parametrize("slots", [1, 3, 7])
def test_the_state_is_split_exactly_and_losses_stay_in_the_account(tmp_path, slots):
    life = Life(tmp_path, [[n % 13 for n in range(40)]] * 6)
    lost = Fault(
        point="before-attach", action="forget", epoch=1, slot=1, marker=str(tmp_path / "lost")
    )
    query = life.start(2, faults=[lost], tolerance=tether.Approximate(60))
    life.go_on(query, 3)
    query.stop()
    spent = query.bound().spent
    assert spent > 0
    again = life.start(slots)
    life.go_on(again, 1)
    assert again.bound().spent >= spent
    assert [e.detail["after"] for e in again.story() if e.what == "rescaled"] == [slots]
    after = counted(again)
    assert after.keys() == life.truth().keys()
    assert wrong_by(after, life.truth(), "l1") <= again.bound().spent
    told = [event.detail for event in again.story() if event.what == "recovery"]
    assert all(detail["exact"] for detail in told)
    assert len(told) == slots
    again.stop()
    # Without a change there is nothing to allow.
    query = life.start(slots, allow_changed=[])
    life.go_on(query, 1)
    assert wrong_by(counted(query), life.truth(), "l1") <= query.bound().spent
    query.stop()


def test_a_driver_that_dies_between_the_record_and_the_manifest_is_understood(
    tmp_path, monkeypatch
):
    life = Life(tmp_path, [[1, 2, 3, 4, 5]] * 4)
    query = life.start(2)
    life.go_on(query, 1)
    query.stop()
    write, calls = LocalStore.write_manifest, []

    def dies_the_second_time(self, manifest):
        calls.append(manifest)
        if len(calls) == 2:
            raise RuntimeError("killed on purpose")
        write(self, manifest)

    monkeypatch.setattr(LocalStore, "write_manifest", dies_the_second_time)
    query = life.start(3)
    with pytest.raises(TetherError, match="killed on purpose"):
        life.go_on(query, 1)
    query.stop()
    monkeypatch.setattr(LocalStore, "write_manifest", write)
    life.read = 1
    # The manifest still says 2, and the log knows better: without leave nothing is touched.
    query = life.start(2, allow_changed=[])
    with pytest.raises(ChangedProgramError, match="from 3 slots to 2"):
        life.go_on(query, 1)
    query.stop()
    life.read = 1
    for slots in (3, 2):
        query = life.start(slots)
        life.go_on(query, 1)
        assert counted(query) == life.truth()
        query.stop()


def test_what_cannot_be_split_is_refused_and_nothing_is_changed(tmp_path):
    life = Life(tmp_path, [[1, 2, 3, 4, 5]] * 4)
    query = life.start(2, operator=Count(total=True))
    life.go_on(query, 1)
    query.stop()
    with pytest.raises(ChangedProgramError, match="slots"):
        life.start(3, operator=Count(total=True), allow_changed=[])
    query = life.start(3, operator=Count(total=True))
    with pytest.raises(TetherError, match="'total' is a number"):
        life.go_on(query, 1)
    query.stop()
    life.read = 1
    query = life.start(2, operator=Count(total=True), allow_changed=[])
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    query.stop()
