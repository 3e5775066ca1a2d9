"""Copies of slots on three executors: one is killed, and the copies of its slots speak at once."""

from __future__ import annotations

import pytest

from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector

from .commands import Counting, from_the_start
from .counting import skewed_keys, true_counts

MASTER = "local-cluster[3,1,900]"


def told(story, what):
    return [event for event in story if event["what"] == what]


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.chaos
def test_copies_speak_for_the_slots_of_a_killed_executor(tmp_path):
    """In the same epoch; nobody goes back; the copies that are gone are made again; and all is exact."""
    tables = skewed_keys(epochs=18, rows=2000, keys=200, seed=5)
    write_epochs(tmp_path / "in", tables)
    policy = "partially-active:share=1,interval=40epochs"
    counting = Counting(tmp_path, policy, master=MASTER, slots=3, conf=from_the_start(3))
    injector = Injector(tmp_path / "strikes", seed=5)
    # Not right after a snapshot, from which slots would be restored where nobody need speak for them:
    # a copy that an attempt of the first epoch left empty is filled from one that ends epoch 3.
    injector.at("halfway", "executor", slot=1, epoch=7)
    stories = []
    with explained_run(tmp_path, injector=injector, stories=stories):
        result = counting.run(injector.faults)
        assert result is not None, counting.log()
        stories += result["story"]
        assert injector.struck()
        assert counting.answer() == true_counts(tables)
        (promoted,) = told(stories, "promoted")
        assert promoted["epoch"] == 7
        assert 1 in promoted["detail"]["slots"]
        assert told(stories, "rewound") == []
        before, again = set(), set()
        for event in told(stories, "copied"):
            (before if event["epoch"] < 7 else again).update(event["detail"]["slots"])
        assert before == {0, 1, 2}
        assert again >= {1}
        assert counting.left_behind() == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.chaos
def test_all_executors_but_the_one_that_stands_by_are_killed(tmp_path):
    """Half of the slots have a copy on it and go on at once; a twin brings the others back; exact."""
    tables = skewed_keys(epochs=24, rows=1000, keys=200, seed=6)
    write_epochs(tmp_path / "in", tables)
    policy = "partially-active:share=0.5,interval=5epochs,meanwhile=skip,standby=1"
    counting = Counting(tmp_path, policy, master=MASTER, slots=4, conf=from_the_start(3))
    injector = Injector(tmp_path / "strikes", seed=6)
    for slot in (2, 3):  # those without a copy, one on each executor that slots speak from
        injector.at("halfway", "executor", slot=slot, epoch=9)
    stories = []
    with explained_run(tmp_path, injector=injector, stories=stories):
        result = counting.run(injector.faults)
        assert result is not None, counting.log()
        stories += result["story"]
        assert len(injector.struck()) == 2
        assert counting.answer() == true_counts(tables)
        promoted = told(stories, "promoted")
        assert {event["epoch"] for event in promoted} == {9}
        assert {slot for event in promoted for slot in event["detail"]["slots"]} == {0, 1}
        (tentative,) = told(stories, "tentative")
        assert tentative["epoch"] == 9
        assert len(told(stories, "taken-over")) == 1
        assert told(stories, "rewound") == []
        assert counting.left_behind() == []
