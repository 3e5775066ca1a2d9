"""An approximate query that heals, on the stand-in for Spark: exact again after every loss."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.testing.twin_schedules import (
    EPOCHS,
    TASK_TRIES,
    TOLD,
    Job,
    epochs_as_one,
    forget_while_main_stands,
    happened,
    in_the_background,
    merging,
    store_down_for_twins,
    wait_for,
)

import tether
from tether.core.errors import BadValueError, QueryRefusedError
from tether.engine.query.runner import Runner
from tether.spark.running.driver import EpochDriver
from tether.spark.running.meanwhile import Meanwhile
from tether.spark.running.taking_over import TakingOver
from tether.spark.tasks.cluster import SparkCluster
from tether.testing.fuzz.meaning import home

LONG = pytest.mark.long

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


def test_an_approximate_query_is_exact_again_after_it_has_healed(tmp_path, monkeypatch):
    swap, healing = EpochDriver._swap, []

    def watched(driver, *what):
        healing.append(driver.healing() is not None)  # the lost slots are still the query's
        swap(driver, *what)

    monkeypatch.setattr(EpochDriver, "_swap", watched)
    job = Job(tmp_path, HEALS)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    query = job.start()
    job.source.available = 10
    query.processAllAvailable()
    told = [event for event in query.story() if event.what in ("healing", "twin", "taken-over")]
    assert [event.what for event in told] == ["healing", "twin", "taken-over"]
    assert told[1].epoch == 5
    assert healing == [True]
    assert query.healing() is None
    check_healed(query)
    # Before another epoch has restored the twin's slots, too, their state can be read.
    sofar = Counter(key for keys in EPOCHS[:10] for key in keys)
    assert {row["k"]: row["n"] for row in query.table("seen").collect()} == sofar
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


def test_slots_stay_where_they_are_while_a_twin_is_to_replace_them(tmp_path, monkeypatch):
    """To move them costs a pause, and is in vain."""
    job, looked = Job(tmp_path, HEALS), []

    def lopsided(cluster, places):
        looked.append(query.healing() is not None)
        return False

    monkeypatch.setattr(SparkCluster, "lopsided", lopsided)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    query = job.start()
    query.processAllAvailable()
    epochs = {event.what: event.epoch for event in query.story()}
    assert epochs["taken-over"] >= epochs["healing"]  # one at least was run meanwhile
    assert looked
    assert not any(looked)
    check_healed(query)
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


def test_a_twin_takes_nothing_from_the_run_that_has_lost_something(tmp_path, monkeypatch):
    """A twin loses a slot, too. What main has saved of it since its loss is whole, but not right."""
    start, again = threading.Event(), []
    monkeypatch.setattr(TakingOver, "await_first_answer", lambda *_: start.wait(30))
    job = Job(tmp_path, tether.Approximate(40, heal=tether.Barrier(5), backup_target=0))
    job.injector.at("before-attach", "forget", slot=1, epoch=7)
    for epoch in (8, 9):  # one twin after the other
        again.append(job.injector.at("before-attach", "forget", slot=1, epoch=epoch))
        Path(again[-1].marker).touch()  # as if it had struck
    query = job.start()
    job.source.available = 10
    errors = in_the_background(query)
    wait_for((tmp_path / "checkpoint" / "commits" / "9").exists)
    for fault in again:
        Path(fault.marker).unlink()
    start.set()
    query.processAllAvailable()
    assert errors == []
    assert all(Path(fault.marker).exists() for fault in again)
    told = [event.what for event in query.story() if event.what in ("twin", "twin-lost")]
    assert told == ["twin", "twin-lost", "twin", "twin-lost", "twin"]
    assert query.bound().spent == 0
    sofar = Counter(key for keys in EPOCHS[:10] for key in keys)
    assert {row["k"]: row["n"] for row in query.table("seen").collect()} == sofar
    query.stop()


EXACT = tether.Barrier(5, mode="sync", meanwhile="stale")


@pytest.mark.parametrize(
    ("policy", "point"),
    [(HEALS, "after-take-over"), (EXACT, "after-take-over"), (EXACT, "after-note-removed")],
)
def test_a_take_over_that_fails_ends_the_query_and_the_next_one_is_whole(tmp_path, policy, point):
    """Until the next start nobody knows what is durable; it must not wait for ever either."""
    job = Job(tmp_path, policy)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    job.injector.at(point, "raise")
    query = job.start()
    errors = in_the_background(query)
    wait_for(lambda: errors)
    assert "on purpose" in str(errors[0])
    query.stop()
    job.epochs = [*EPOCHS, [0, 1, 2]]
    query = job.start()
    query.processAllAvailable()
    assert query.bound().spent == 0
    counts = Counter(key for keys in job.epochs for key in keys)
    assert {row["k"]: row["n"] for row in query.table("seen").collect()} == counts
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


def test_on_demand_the_bound_covers_a_loss_until_it_is_to_be_healed(tmp_path):
    job = Job(tmp_path, tether.Approximate(10_000, heal=tether.Barrier(5), heal_on="demand"))
    job.injector.at("before-attach", "forget", slot=1, epoch=7)
    query = job.start()
    job.source.available = 10
    query.processAllAvailable()
    assert happened(query) == []
    assert 0 < query.bound().spent <= THETA
    assert query.heal()
    query.processAllAvailable()
    check_healed(query)
    assert happened(query) == ["twin", "taken-over"]
    job.injector.at("before-attach", "forget", slot=0, epoch=11)
    job.source.available = len(EPOCHS)
    query.processAllAvailable()
    assert happened(query) == ["twin", "taken-over"]  # asked for once, healed once
    query.stop()


def test_what_cannot_be_healed_is_refused(tmp_path):
    with pytest.raises(BadValueError, match="heal_on"):
        tether.Approximate(5, heal_on="demand")
    with pytest.raises(BadValueError, match="heal="):
        tether.Approximate(5, heal=tether.Barrier(2.0, by="seconds"))
    with pytest.raises(BadValueError, match="heal="):
        tether.Approximate(float("inf"), heal=tether.Barrier(2))
    job = Job(tmp_path, tether.Approximate(5, heal=tether.Barrier(500)))
    with pytest.raises(QueryRefusedError, match="healed"):
        job.start()


def test_one_that_heals_reads_all_that_there_is_as_one(tmp_path, monkeypatch):
    merged = epochs_as_one(monkeypatch)
    job = merging(tmp_path, HEALS)
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    query = job.start()
    query.processAllAvailable()
    check_healed(query)
    query.stop()
    ((first, last),) = merged
    assert first == 5
    assert last >= 8


@pytest.mark.parametrize("strike", [None, "raise", "forget"])
def test_what_the_query_ran_meanwhile_is_read_as_one_too(tmp_path, monkeypatch, strike):
    begun, ran, as_one, run = threading.Event(), threading.Event(), Runner.run_as_one, Meanwhile.run

    def held(runner, given, epoch):
        begun.set()
        assert ran.wait(30)
        if strike and runner.committed_epoch > 5:
            Path(fault.marker).unlink()
        as_one(runner, given, epoch)

    def awaited(meanwhile, given, epoch):
        assert epoch < 10 or begun.wait(30)
        run(meanwhile, given, epoch)
        if epoch == 19:
            ran.set()

    monkeypatch.setattr(Runner, "run_as_one", held)
    monkeypatch.setattr(Meanwhile, "run", awaited)
    merged = epochs_as_one(monkeypatch)
    job = merging(tmp_path, HEALS)
    job.epochs = [*EPOCHS, *EPOCHS[:8]]
    job.injector.at("before-attach", "forget", slot=1, epoch=8)
    if strike:
        point = "halfway" if strike == "raise" else "before-attach"
        fault = job.injector.at(point, strike, slot=0, epoch=19)
        Path(fault.marker).touch()  # as if it had struck: not the query's own epoch
    query = job.start()
    query.processAllAvailable()
    assert strike is None or Path(fault.marker).exists()
    check_healed(query)
    counts = Counter(key for keys in job.epochs for key in keys)
    assert {row["k"]: row["n"] for row in query.table("seen").collect()} == counts
    (_, last), *later = merged
    again = [(5, 19)] if strike == "forget" else []  # the next twin starts from the snapshot
    assert last in (8, 9)
    assert later == [(last, 19), *again]
    assert happened(query) == ["twin", *["twin-lost", "twin"] * len(again), "taken-over"]
    query.stop()


def test_a_query_whose_source_has_no_old_rows_is_not_healed_and_stays_within_its_bound(tmp_path):
    job = Job(tmp_path, HEALS)
    query, errors = forget_while_main_stands(job, 8)
    # Its epochs run in one thread here, that of the first who asked for them.
    wait_for(lambda: "no-twin" in happened(query) and job.given()[-1]["epoch"] == len(EPOCHS) - 1)
    assert errors == []
    assert query.healing() is None
    assert 0 < query.bound().spent <= THETA
    query.stop()
