"""A loss, a twin and its take-over on the stand-in for Spark: schedules that can be held still."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import signal
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.testing.counting import Count

import tether
from tether.chaos.faults import is_holding, release
from tether.core.errors import BadValueError, QueryRefusedError, TetherError
from tether.spark.running.remains import unfinished
from tether.testing.fuzz.meaning import home
from tether.testing.injector import Injector
from tether.testing.inprocess import EpochSource, LocalSession

SCHEMA = pa.schema([("k", pa.int64())])
EPOCHS = [[(7 * e + i) % 5 for i in range(6)] for e in range(12)]


class Job:
    """A count of keys, restartable, whose sink keeps what it was given in a file."""

    def __init__(self, work, policy):
        self.work, self.policy = work, policy
        self.injector, self.epochs = Injector(work / "strikes"), EPOCHS

    def __call__(self, rows, epoch):
        got = sorted([row["k"], row["n"]] for row in rows.collect())
        self._tell(epoch=epoch, rows=got)

    def take_back(self, epoch):
        self._tell(back=epoch)

    def _tell(self, **what):
        with (self.work / "given").open("a") as file:
            file.write(json.dumps(what) + "\n")

    def start(self, policy=None, **options):
        self.session = LocalSession(home, batch_rows=4, faults=self.injector.faults)
        rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in self.epochs]
        self.source = EpochSource(self.session, rows, SCHEMA)
        return (
            tether.stream(self.source, replays=True)
            .apply(Count(), key="k", parallelism=2)
            .start(
                self,
                tolerance=policy or self.policy,
                backup=str(self.work / "backup"),
                checkpoint=str(self.work / "checkpoint"),
                arena_dir=str(self.work / "arena"),
                faults=self.injector.faults,
                **options,
            )
        )

    def in_a_process_of_its_own(self):
        """Run to the end in a child; give how it ended: 0, or the signal that killed it."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                faulthandler.dump_traceback_later(60, exit=True)
                query = self.start()
                query.processAllAvailable()
                query.stop()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def given(self):
        lines = (self.work / "given").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def check(self, crashes=0):
        """The stable output of each epoch once, in order, and what a run without a loss gives.

        Only the epoch that was in hand when the driver was killed may come again, and alike.
        """
        given = self.given()
        assert [one for one in given if "back" in one] == []
        again = len(given) - len(EPOCHS)
        assert 0 <= again <= crashes
        counts: Counter[int] = Counter()
        first = {}
        for one in given:
            assert first.setdefault(one["epoch"], one["rows"]) == one["rows"]
        assert list(first) == list(range(len(EPOCHS)))
        for (_, rows), keys in zip(sorted(first.items()), EPOCHS, strict=True):
            counts.update(keys)
            assert rows == sorted([key, counts[key]] for key in set(keys))


TOLD = ("tentative", "twin", "twin-lost", "taken-over", "rewound", "no-twin")


def happened(query):
    return [event.what for event in query.story() if event.what in TOLD]


def to_the_end(job):
    query = job.start()
    query.processAllAvailable()
    assert query.healing() is None
    told = happened(query)
    query.stop()
    job.check()
    assert unfinished(str(job.work / "checkpoint")) is None
    return told


LONG = pytest.mark.long
TASK_TRIES = 4
"""How often the stand-in tries a task, as Spark does."""


@pytest.mark.parametrize(
    ("how", "strategy"),
    [
        ("stale", "delay"),
        ("skip", "process"),
        ("stale", "suspend"),
        pytest.param("skip", "delay", marks=LONG),
        pytest.param("stale", "process", marks=LONG),
        pytest.param("skip", "suspend", marks=LONG),
    ],
)
def test_a_query_goes_on_after_a_loss_and_ends_exact(tmp_path, how, strategy):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile=how, strategy=strategy))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    assert to_the_end(job) == ["tentative", "twin", "taken-over"]


def test_without_a_snapshot_the_twin_starts_from_nothing(tmp_path):
    job = Job(tmp_path, tether.Barrier(40, meanwhile="stale"))
    job.injector.at("during-writing", "raise", epoch=0)  # of the only snapshot
    job.injector.at("before-attach", "forget", slot=0, epoch=6)
    query = job.start()
    query.processAllAvailable()
    twins = [event for event in query.story() if event.what == "twin"]
    query.stop()
    job.check()
    assert [event.epoch for event in twins] in ([-1], [0])


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=LONG) for n in range(2, 30))])
def test_many_losses_in_a_row_of_main_and_of_twins(tmp_path, seed):
    random = Random(seed)
    how = random.choice(["stale", "skip"])
    job = Job(tmp_path, tether.Barrier(random.randint(2, 6), mode="sync", meanwhile=how))
    for _ in range(10):
        point = random.choice(["before-attach", "before-attach", "halfway", "after-apply"])
        action = "forget" if point == "before-attach" else "raise"
        job.injector.at(point, action, slot=random.randrange(2), epoch=random.randrange(1, 12))
    told = to_the_end(job)
    assert told.count("tentative") == told.count("taken-over")
    assert "rewound" not in told


@pytest.mark.parametrize(
    ("point", "epoch"),
    [
        ("after-note", 7),  # 1: nothing tentative was given
        ("after-job", 9),  # 2: main has run a tentative epoch
        ("before-spark-commit", 9),
        ("after-note", 9),  # 4: the twin has given, and noted, a stable epoch
        ("after-twin-epoch", 0),  # 3
        ("after-hold", 0),  # 5
        ("after-twin-saved", 0),  # 6
        ("after-announcing", 0),  # 7
        ("after-take-over", 0),  # 8: recorded, but the note is there
        ("after-note-removed", 0),  # 9
    ],
)
def test_a_driver_killed_after_each_step_is_followed_by_an_exact_one(tmp_path, point, epoch):
    job = Job(tmp_path, tether.Barrier(4, mode="sync", meanwhile="stale"))
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    job.injector.at(point, "kill", epoch=epoch)
    assert job.in_a_process_of_its_own() == -signal.SIGKILL
    to_the_end_after = job.in_a_process_of_its_own()
    assert to_the_end_after == 0
    job.check(crashes=1)
    assert len(job.injector.struck()) == 2
    assert unfinished(str(tmp_path / "checkpoint")) is None
    arenas = {path.name for path in (tmp_path / "arena").glob("*/*")}
    assert arenas == set()


def test_a_user_may_stop_in_the_middle_and_start_again(tmp_path):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="stale"))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    held = job.injector.at("during-recovery", "hold", slot=0, epoch=5)  # only the twin's slot 0 is
    query = job.start()

    def work_until_stopped():
        with contextlib.suppress(TetherError):
            query.processAllAvailable()

    work = threading.Thread(target=work_until_stopped, daemon=True)
    work.start()
    wait_for(lambda: is_holding(held))
    told = query.healing()
    assert told is not None
    assert (told["since_epoch"], told["snapshot"], told["fidelity"]) == (9, 5, 0.5)
    bound = query.bound()  # of an answer that lacks rows nothing is promised
    assert (bound.tentative_since, bound.spent, bound.worst_now) == (9, math.inf, math.inf)
    stop = threading.Thread(target=query.stop)
    stop.start()
    release(held)
    stop.join(30)
    work.join(30)
    assert happened(query)[:2] == ["tentative", "twin"]
    if unfinished(str(tmp_path / "checkpoint")) is not None:
        with pytest.raises(QueryRefusedError, match="tentative since"):
            job.start(tether.MiniBatch(), allow_changed=("policy",))
    # Without meanwhile it is finished all the same.
    query = job.start(tether.Barrier(5, mode="sync"))
    query.processAllAvailable()
    assert query.healing() is None
    assert (query.bound().tentative_since, query.bound().spent) == (None, 0.0)
    query.stop()
    job.check(crashes=1)


def test_without_room_for_a_second_state_the_query_goes_back_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("tether.engine.slot.residents.free_bytes", lambda path: 1000)
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="stale"))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    query = job.start()
    query.processAllAvailable()
    assert happened(query) == ["no-twin", "rewound"]
    (told,) = [event.cause for event in query.story() if event.what == "no-twin"]
    assert "no room for a second copy" in told
    query.stop()


def test_without_the_old_epochs_nobody_goes_back_and_nothing_wrong_is_given(tmp_path):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="stale"))
    held = job.injector.at("before-attach", "hold", slot=1, epoch=9)
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    query = job.start()
    errors = in_the_background(query)
    wait_for(lambda: is_holding(held))
    for epoch in (6, 7):
        (tmp_path / "checkpoint" / "offsets" / str(epoch)).unlink()
    release(held)
    wait_for(lambda: errors)
    assert happened(query) == ["no-twin"]
    (told,) = [event.cause for event in query.story() if event.what == "no-twin"]
    assert "epoch 6 were is not known any more" in told
    assert isinstance(errors[0], TetherError)
    assert "epoch 6" in str(errors[0]) or "snapshot" in str(errors[0])
    query.stop()
    assert [one["epoch"] for one in job.given()] == list(range(9))  # stable ones, and no more


def store_down_for_twins(job, failures):
    """Let so many reads of a twin's fail, from when its slot 0 restores: main never loses that one."""
    held = job.injector.at("during-recovery", "hold", slot=0)
    reads = [job.injector.at("store-read", "fail") for _ in range(failures)]
    for fault in reads:
        Path(fault.marker).touch()  # as if it had struck

    def go_down():
        wait_for(lambda: is_holding(held))
        for fault in reads:
            Path(fault.marker).unlink()
        release(held)

    threading.Thread(target=go_down, daemon=True).start()


def test_a_store_that_fails_while_the_twin_restores_costs_a_twin(tmp_path):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="skip"))  # main restores nothing
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    store_down_for_twins(job, 2 * TASK_TRIES)
    told = to_the_end(job)
    assert told == ["tentative", "twin", "twin-lost", "twin", "twin-lost", "twin", "taken-over"]


def test_a_store_that_fails_for_good_ends_the_query_and_a_restart_finishes_it(tmp_path):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="skip"))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    store_down_for_twins(job, 3 * TASK_TRIES)
    query = job.start()
    with pytest.raises(TetherError, match="on purpose"):
        query.processAllAvailable()
    assert happened(query) == ["tentative", "twin", "twin-lost", "twin", "twin-lost", "twin"]
    query.stop()
    assert unfinished(str(tmp_path / "checkpoint")) is not None
    query = job.start()  # the store is there again
    query.processAllAvailable()
    query.stop()
    job.check(crashes=1)


def in_the_background(query):
    """Let it work on a thread of its own; what it raises is in the list that is given."""
    errors = []

    def work():
        try:
            query.processAllAvailable()
        except TetherError as error:
            errors.append(error)

    threading.Thread(target=work, daemon=True).start()
    return errors


# ---- healing ------------------------------------------------------------------------------------

HEALS = tether.Approximate(10_000, heal=tether.Barrier(5))
THETA = 2_500.0  # Θ / (2 · 2 slots)


def true_counts():
    return dict(Counter(key for keys in EPOCHS for key in keys))


def check_healed(query):
    bound = query.bound()
    assert (bound.spent, bound.promised) == (0.0, 10_000)
    assert {report["failures"] for report in query.slots()} == {0}
    assert {report["losses"] for report in query.slots()} == {0}
    assert {report["theta"] for report in query.slots()} == {THETA}


def test_an_approximate_query_is_exact_again_after_it_has_healed(tmp_path):
    job = Job(tmp_path, HEALS)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    query = job.start()
    job.source.available = 10
    query.processAllAvailable()
    told = [event for event in query.story() if event.what in ("healing", "twin", "taken-over")]
    assert [event.what for event in told] == ["healing", "twin", "taken-over"]
    assert told[1].epoch == 5
    job.source.available = len(EPOCHS)
    query.processAllAvailable()
    check_healed(query)
    # What it gave meanwhile stands, within the bound; what it gives from now on is exact.
    assert [one["epoch"] for one in job.given()] == list(range(len(EPOCHS)))
    counts: Counter[int] = Counter()
    for keys, one in zip(EPOCHS, job.given(), strict=True):
        counts.update(keys)
        right = sorted([key, counts[key]] for key in set(keys))
        assert (one["rows"] == right) == (one["epoch"] not in (8, 9))
    query.stop()
    # Durably: another driver finds no loss, and state that is exact.
    job.source.available = 0
    query = job.start()
    query.processAllAvailable()
    check_healed(query) if query.slots() else None
    assert query.bound().spent == 0.0
    query.stop()


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=LONG) for n in range(1, 30))])
def test_ten_losses_in_a_row_are_all_healed(tmp_path, seed):
    random = Random(seed)
    job = Job(tmp_path, HEALS)
    for _ in range(10):
        epoch = random.randrange(1, 11)
        job.injector.at("before-attach", "forget", slot=random.randrange(2), epoch=epoch)
    query = job.start()
    job.source.available = 11
    query.processAllAvailable()
    assert query.bound().spent == 0.0
    job.source.available = len(EPOCHS)
    query.processAllAvailable()
    check_healed(query)
    rows = job.given()[-1]["rows"]
    assert rows == sorted([key, true_counts()[key]] for key in set(EPOCHS[-1]))
    query.stop()


@pytest.mark.parametrize(
    "point", ["after-twin-epoch", "after-hold", "after-twin-saved", "after-take-over"]
)
def test_a_driver_killed_while_it_heals_heals_again(tmp_path, point):
    job = Job(tmp_path, HEALS)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    job.injector.at(point, "kill")
    assert job.in_a_process_of_its_own() == -signal.SIGKILL
    job.epochs = [*EPOCHS, [0, 1, 2, 3, 4]]
    query = job.start()
    query.processAllAvailable()
    check_healed(query)
    assert not query.heal()  # there is nothing to heal any more
    job.epochs = [*job.epochs, [0, 1, 2, 3, 4]]
    query.stop()
    query = job.start()
    query.processAllAvailable()
    counts = Counter(key for keys in job.epochs for key in keys)
    assert job.given()[-1]["rows"] == sorted([key, counts[key]] for key in range(5))
    query.stop()


def test_a_query_that_cannot_be_healed_goes_on_within_its_bound(tmp_path):
    job = Job(tmp_path, HEALS)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    store_down_for_twins(job, 3 * TASK_TRIES)
    query = job.start()
    query.processAllAvailable()
    told = [event.what for event in query.story() if event.what in (*TOLD, "healing")]
    assert told == ["healing", "twin", "twin-lost", "twin", "twin-lost", "twin", "no-twin"]
    assert query.healing() is None
    assert 0 < query.bound().spent <= THETA
    assert query.heal()  # the store is there again
    query.processAllAvailable()
    check_healed(query)
    query.stop()


def test_a_slot_without_any_state_is_healed_too(tmp_path):
    job = Job(tmp_path, HEALS)
    job.epochs = [[3] for _ in range(8)]
    empty = 1 - home({"k": 3}, ["k"], 2)
    job.injector.at("before-attach", "forget", slot=1 - empty, epoch=7)
    query = job.start()
    query.processAllAvailable()
    check_healed(query)
    query.stop()


def test_what_cannot_be_healed_is_refused(tmp_path):
    with pytest.raises(BadValueError, match="heal="):
        tether.Approximate(5, heal=tether.Barrier(2.0, by="seconds"))
    with pytest.raises(BadValueError, match="heal="):
        tether.Approximate(float("inf"), heal=tether.Barrier(2))
    job = Job(tmp_path, tether.Approximate(5, heal=tether.Barrier(500)))
    with pytest.raises(QueryRefusedError, match="healed"):
        job.start()


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
