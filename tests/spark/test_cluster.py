"""Three executors on loopback: slots stay where they are, and come back when one is killed."""

from __future__ import annotations

import pytest

from tether.spark.faults import Fault
from tether.testing.epochs import write_epochs

from .commands import Counting
from .counting import l1_error, skewed_keys, true_counts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]

MASTER = "local-cluster[3,1,900]"


def test_an_executor_killed_moves_its_slots_and_loses_at_most_theta(tmp_path):
    """And when Spark has replaced it, the slots are spread anew, which loses nothing."""
    tables = skewed_keys(epochs=24, rows=4000, keys=200, seed=5)
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "approximate:max_state_error=3000", master=MASTER, slots=3)
    fault = Fault(
        point="halfway", slot=1, epoch=3, action="executor", marker=str(tmp_path / "struck")
    )
    result = counting.run([fault])
    assert result is not None, counting.log()
    assert (tmp_path / "struck").exists()
    moved = next(event["epoch"] for event in result["story"] if event["what"] == "respread")
    recoveries = [event for event in result["story"] if event["what"] == "recovery"]
    lost = {event["slot"] for event in recoveries if event["epoch"] < moved}
    assert lost >= {1}
    assert all(event["detail"]["exact"] for event in recoveries if event["epoch"] == moved)
    error = l1_error(counting.answer(), true_counts(tables))
    assert 0 < error <= result["bound"]["spent"] <= 3000
    assert counting.left_behind() == []

    placed: dict[int, list[str]] = {}
    for event in result["story"]:
        if event["what"] == "placed" and event["epoch"] < moved:
            placed.setdefault(event["slot"], []).append(event["detail"]["executor"])
    assert len({path[0] for path in placed.values()}) == 3, f"slots were not spread: {placed}"
    killed = placed[1][0]
    for slot, path in placed.items():
        assert len(path) == (2 if path[0] == killed else 1), f"slot {slot} went {path}"
    last = {
        event["slot"]: event["detail"]["executor"]
        for event in result["story"]
        if event["what"] == "placed"
    }
    assert len(set(last.values())) == 3, f"slots were not spread anew: {last}"
