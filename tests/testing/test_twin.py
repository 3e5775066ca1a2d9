"""A loss, a twin and its take-over on the stand-in for Spark: schedules that can be held still."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from random import Random

import pytest
from tests.testing.counting import Count, MergingCount
from tests.testing.twin_schedules import (
    TASK_TRIES,
    Job,
    epochs_as_one,
    forget_while_main_stands,
    happened,
    in_the_background,
    merging,
    store_down_for_twins,
    to_the_end,
    wait_for,
)

import tether
from tether.chaos.faults import is_holding, release
from tether.core.errors import QueryRefusedError, TetherError
from tether.spark.running.remains import unfinished

LONG = pytest.mark.long


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


def test_epochs_whose_output_was_given_are_read_again_as_one(tmp_path, monkeypatch):
    merged = epochs_as_one(monkeypatch)
    job = merging(tmp_path, tether.Barrier(5, mode="sync", meanwhile="stale"))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    job.injector.at("halfway", "raise", slot=0, epoch=8)  # a task of main's; then one of the twin's
    job.injector.at("halfway", "raise", slot=0, epoch=8)
    assert to_the_end(job) == ["tentative", "twin", "taken-over"]
    assert merged == [(5, 8)]
    assert len(job.injector.struck()) == 3


def test_a_twin_in_place_of_a_lost_one_reads_them_as_one_again(tmp_path, monkeypatch):
    merged = epochs_as_one(monkeypatch)
    job = merging(tmp_path, tether.Barrier(5, mode="sync", meanwhile="skip"))
    job.injector.at("before-attach", "forget", slot=1, epoch=9)
    store_down_for_twins(job, TASK_TRIES)
    assert to_the_end(job) == ["tentative", "twin", "twin-lost", "twin", "taken-over"]
    assert merged == [(5, 8), (5, 8)]


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


@pytest.mark.parametrize("operator", [Count(), MergingCount()])
def test_a_source_without_the_old_rows_ends_the_query_and_no_wrong_row_is_called_stable(
    tmp_path, operator
):
    job = Job(tmp_path, tether.Barrier(5, mode="sync", meanwhile="stale"))
    job.operator = operator
    query, errors = forget_while_main_stands(job, 9)
    wait_for(lambda: errors)
    assert "the rows before epoch 9 are gone" in str(errors[0])
    assert happened(query) == ["tentative", "twin", "twin-lost", "twin", "twin-lost", "twin"]
    query.stop()
    assert [one["epoch"] for one in job.given()] == list(range(9))  # stable ones, and no more
    query = job.start()  # the source has them again: a longer retention, a copy
    query.processAllAvailable()
    query.stop()
    job.check(crashes=1)


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
