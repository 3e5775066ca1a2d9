"""Two executors on loopback: slots stay where they are, and come back when one is killed."""

from __future__ import annotations

import pytest

from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector

from .commands import Counting
from .counting import l1_error, skewed_keys, true_counts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]

MASTER = "local-cluster[2,1,900]"


def test_an_executor_killed_moves_its_slots_and_loses_at_most_theta(tmp_path):
    tables = skewed_keys(epochs=7, rows=4000, keys=200, seed=5)
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "approximate:max_state_error=3000", master=MASTER, slots=2)
    injector = Injector(tmp_path / "strikes", seed=5)
    injector.at("halfway", "executor", slot=1, epoch=3)
    stories = []
    with explained_run(tmp_path, injector=injector, stories=stories):
        result = counting.run(injector.faults)
        assert result is not None, counting.log()
        stories += result["story"]
        assert injector.struck()
        recoveries = [event for event in stories if event["what"] == "recovery"]
        assert {event["slot"] for event in recoveries} >= {1}
        error = l1_error(counting.answer(), true_counts(tables))
        assert 0 < error <= result["bound"]["spent"] <= 3000
        assert counting.left_behind() == []

        placed: dict[int, list[str]] = {}
        for event in stories:
            if event["what"] == "placed":
                placed.setdefault(event["slot"], []).append(event["detail"]["executor"])
        spread = {path[0] for path in placed.values()}
        assert len(spread) == 2, f"slots were not spread: {placed}"
        lost = placed[1][0]
        for slot, path in placed.items():
            assert len(path) == (2 if path[0] == lost else 1), f"slot {slot} went {path}"
