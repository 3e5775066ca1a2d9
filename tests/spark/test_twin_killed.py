"""Executors and drivers of a query with a twin get SIGKILL: what was given is compared row by row."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.spark.twin_job import TwinJob

from tether.spark.running.remains import unfinished
from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector

from .counting import skewed_keys, true_counts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.long]

CLUSTER = "local-cluster[3,1,900]"
EPOCHS = 80


def truth(tables):
    """What a run without a loss gives: for each epoch the counts of its keys."""
    counts: Counter[int] = Counter()
    rows = Counter()
    for epoch, table in enumerate(tables):
        keys = table["k"].to_pylist()
        counts.update(keys)
        rows.update((epoch, key, counts[key]) for key in set(keys))
    return rows


def shown(rows):
    return Counter((row["_epoch"], row["k"], row["count"]) for row in rows)


def check_rows(history, tables):
    """Stable rows once each and right; every tentative one taken back with the values it had."""
    put = ("insert", "update_postimage")
    stable = [r for r in history if r["_stability"] == "stable" and r["_change_type"] in put]
    assert shown(stable) == truth(tables)
    guesses = [r for r in history if r["_stability"] == "tentative" and r["_change_type"] in put]
    back = [r for r in history if r["_change_type"] in ("update_preimage", "delete")]
    assert shown(back) == shown(guesses)
    return guesses


def happened(result, *what):
    return [event for event in result["story"] if event["what"] in what]


TEN = ["main", "twin", "main", "twin", "twin", "main", "main", "twin", "twin", "main"]


@pytest.mark.parametrize(
    ("how", "kills", "seed"), [("stale", TEN[:4], 4), ("stale", TEN, 5), ("skip", TEN, 6)]
)
def test_executors_of_main_and_twin_killed_one_after_the_other(tmp_path, how, kills, seed):
    job = TwinJob(tmp_path, f"barrier:interval=30epochs,mode=sync,meanwhile={how}", CLUSTER)
    tables, result = killed(job, kills, seed)
    guesses = check_rows(result["history"], tables)
    assert guesses  # it answered meanwhile
    assert happened(result, "twin-lost")
    assert not happened(result, "rewound")
    assert len(happened(result, "tentative")) == len(happened(result, "taken-over"))
    assert unfinished(str(tmp_path / "checkpoint")) is None


def test_executors_of_a_query_that_heals_killed_one_after_the_other(tmp_path):
    job = TwinJob(tmp_path, "approximate:max_state_error=100000,heal=30epochs", CLUSTER)
    _, result = killed(job, ["main", "twin"] * 5, seed=7)
    assert result["spent"] == 0.0
    assert happened(result, "taken-over")


def killed(job, kills, seed):
    """The rows of all epochs that the query saw, and what became of it; its state must be exact."""
    tables = skewed_keys(EPOCHS, 60, 12, seed=seed)
    write_epochs(job.work / "later", tables)
    (job.work / "in").mkdir()
    result = job.run(kills=kills)
    assert result is not None, job.log()
    seen = tables[: len(list((job.work / "in").glob("*.parquet")))]
    assert result["table"] == {str(key): n for key, n in true_counts(seen).items()}
    assert job.left_behind() == []
    return seen, result


STEPS = {
    "1": ("after-note", 0),
    "2": ("after-job", 9),
    "2, given": ("before-spark-commit", 9),
    "3": ("after-twin-epoch", 0),
    "4": ("after-note", 9),
    "5": ("after-hold", 0),
    "6": ("after-twin-saved", 0),
    "7": ("after-announcing", 0),
    "8": ("after-take-over", 0),
    "9": ("after-note-removed", 0),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_after_a_step_is_followed_by_one_that_goes_on(tmp_path, step):
    tables = skewed_keys(14, 60, 12, seed=8)
    write_epochs(tmp_path / "in", tables)
    (tmp_path / "later").mkdir()
    point, epoch = STEPS[step]
    injector = Injector(tmp_path / "strikes")
    injector.at("before-attach", "forget", slot=1, epoch=8)
    injector.at(point, "kill", epoch=epoch)
    job = TwinJob(tmp_path, "barrier:interval=4epochs,mode=sync,meanwhile=stale")
    stories: list[object] = []
    with explained_run(tmp_path, injector=injector, stories=stories):
        assert job.run(injector.faults) is None
        assert len(injector.struck()) == 2, job.log()
        result = job.run(injector.faults)
        assert result is not None, job.log()
        stories += result["story"]
        check_rows(result["history"], tables)
        assert result["table"] == {str(k): n for k, n in true_counts(tables).items()}
        assert unfinished(str(tmp_path / "checkpoint")) is None
        assert job.left_behind() == []
