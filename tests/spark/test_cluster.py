"""Three executors on loopback: slots stay where they are, and come back when one is killed."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.kills import PROPERTY

from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector

from .commands import Counting, from_the_start
from .counting import l1_error, skewed_keys, true_counts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]

MASTER = "local-cluster[3,1,900]"


@contextmanager
def one_executor_killed(work, policy, *, epochs, slots, epoch):
    """Rows, the command that counted them on three executors, and what it said: one was killed."""
    tables = skewed_keys(epochs=epochs, rows=4000, keys=200, seed=5)
    write_epochs(work / "in", tables)
    counting = Counting(work, policy, master=MASTER, slots=slots, conf=from_the_start(3))
    injector = Injector(work / "strikes", seed=5)
    injector.at("halfway", "executor", slot=1, epoch=epoch)
    stories = []
    with explained_run(work, injector=injector, stories=stories):
        result = counting.run(injector.faults)
        assert result is not None, counting.log()
        stories += result["story"]
        assert injector.struck()
        yield tables, counting, result


def places(story, *, before=float("inf")):
    """For each slot, the executors that it was on, in order."""
    placed: dict[int, list[str]] = {}
    for event in story:
        if event["what"] == "placed" and event["epoch"] < before:
            placed.setdefault(event["slot"], []).append(event["detail"]["executor"])
    return placed


def epoch_of_the_move(story):
    """When the slots were spread again: once Spark has replaced the executor, which takes its time."""
    return next((event["epoch"] for event in story if event["what"] == "respread"), None)


@pytest.mark.parametrize("epochs", [7, pytest.param(40, marks=pytest.mark.long)])
def test_an_executor_killed_moves_its_slots_and_loses_at_most_theta(
    tmp_path, epochs, record_property
):
    policy = "approximate:max_state_error=3000"
    run = one_executor_killed(tmp_path, policy, epochs=epochs, slots=3, epoch=3)
    with run as (tables, counting, result):
        stories = result["story"]
        error = l1_error(counting.answer(), true_counts(tables))
        assert 0 < error <= result["bound"]["spent"] <= 3000
        assert counting.left_behind() == []

        move = epoch_of_the_move(stories)
        recoveries = [event for event in stories if event["what"] == "recovery"]
        assert 1 in {event["slot"] for event in recoveries}
        assert all(event["detail"]["exact"] for event in recoveries if event["epoch"] == move)
        placed = places(stories, before=epochs if move is None else move)
        assert len({path[0] for path in placed.values()}) == 3, f"slots were not spread: {placed}"
        killed = placed[1][0]
        for slot, path in placed.items():
            assert len(path) == (2 if path[0] == killed else 1), f"slot {slot} went {path}"
        if epochs > 7:  # in so many, Spark has started another executor, and it has got its slot
            assert move is not None
            last = {path[-1] for path in places(stories).values()}
            assert len(last) == 3, f"slots were not spread again: {last}"
    record_property(PROPERTY, ("on Spark", "approximate", "executor", "halfway"))


@pytest.mark.long
def test_under_barrier_only_the_killed_executors_slots_go_back(tmp_path):
    policy = "barrier:interval=4epochs,mode=sync"
    run = one_executor_killed(tmp_path, policy, epochs=9, slots=6, epoch=6)
    with run as (tables, counting, result):
        stories = result["story"]
        assert l1_error(counting.answer(), true_counts(tables)) == 0
        (rewound,) = [event for event in stories if event["what"] == "rewound"]
        placed = places(stories, before=rewound["epoch"])
        gone = {slot for slot, path in placed.items() if path[0] == placed[1][0]}
        assert rewound["detail"]["slots"] == len(gone)
        assert rewound["detail"]["stayed"] == 6 - len(gone) > 0
        recovered = [event["slot"] for event in stories if event["what"] == "recovery"]
        assert sorted(recovered) == sorted(gone)
        assert counting.left_behind() == []
