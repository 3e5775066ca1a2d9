"""Real SIGKILLs of Python workers and of whole jobs, at named points of the epoch protocol."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from tether.backup.inspect import describe_store
from tether.backup.opening import open_store
from tether.backup.recovery import recover_chain
from tether.spark.faults import Fault
from tether.testing.epochs import write_epochs
from tether.testing.processes import descendants

from .commands import Counting
from .counting import l1_error, skewed_keys, true_counts

pytestmark = pytest.mark.chaos

EPOCHS = 6


@pytest.fixture
def tables():
    return skewed_keys(epochs=EPOCHS, rows=4000, keys=200, seed=11)


def last_epoch_answers(tables, answer) -> dict[int, int]:
    """Truth for the keys that the last run has emitted."""
    truth = true_counts(tables)
    return {key: truth[key] for key in answer}


POINTS = ["before-attach", "halfway", "after-apply", "during-backup", "after-commit"]


def test_python_workers_killed_at_every_point_of_the_protocol_change_nothing(tmp_path, tables):
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "approximate:max_state_error=2000")
    faults = [
        Fault(point=point, epoch=1 + number, marker=str(tmp_path / f"struck-{point}"))
        for number, point in enumerate(POINTS)
    ]
    result = counting.run(faults)
    assert result is not None, counting.log()
    struck = [point for point in POINTS if (tmp_path / f"struck-{point}").exists()]
    assert struck == POINTS
    assert l1_error(counting.answer(), true_counts(tables)) == 0
    assert result["bound"]["spent"] == 0
    assert [event["what"] for event in result["story"]].count("recovery") == 0


def test_a_job_killed_before_sparks_commit_finds_its_state_on_the_node(tmp_path, tables):
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "approximate:max_state_error=2000", arena_scope="node")
    # In local mode the executor is the driver's JVM: killing it ends the whole job.
    fault = Fault(point="after-commit", epoch=3, action="executor", marker=str(tmp_path / "struck"))
    assert counting.run([fault]) is None
    result = counting.run([fault])
    assert result is not None, counting.log()
    error = l1_error(counting.answer(), last_epoch_answers(tables, counting.answer()))
    assert (error, result["bound"]["spent"]) == (0, 0)
    events = [event["what"] for event in result["story"]]
    assert "rollback" in events
    assert "recovery" not in events


@pytest.mark.long
def test_exact_backups_lose_nothing_when_the_job_is_killed(tmp_path, tables):
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "mini-batch")
    fault = Fault(point="halfway", epoch=3, action="executor", marker=str(tmp_path / "struck"))
    assert counting.run([fault]) is None
    result = counting.run([fault])
    assert result is not None, counting.log()
    assert l1_error(counting.answer(), last_epoch_answers(tables, counting.answer())) == 0
    assert result["bound"]["spent"] == 0


@pytest.mark.long
def test_many_losses_stay_within_the_bound(tmp_path, tables):
    """The whole job killed in one epoch after the other, state lost every time."""
    write_epochs(tmp_path / "in", tables)
    counting = Counting(tmp_path, "approximate:max_state_error=1000")
    for epoch in (1, 3):
        marker = str(tmp_path / f"struck-{epoch}")
        fault = Fault(point="after-apply", epoch=epoch, action="executor", marker=marker)
        assert counting.run([fault]) is None
    result = counting.run()
    assert result is not None, counting.log()
    error = l1_error(counting.answer(), last_epoch_answers(tables, counting.answer()))
    # With so large a θ something was lost, or this test shows nothing.
    assert 0 < error <= result["bound"]["spent"] <= 1000
    recoveries = [event for event in result["story"] if event["what"] == "recovery"]
    assert max(event["detail"]["failures"] for event in recoveries) == 2


def test_ctrl_c_flushes_the_state_and_leaves_nothing_behind(tmp_path, tables):
    write_epochs(tmp_path / "in", tables * 20)
    counting = Counting(tmp_path, "approximate:max_state_error=1000000", arena_scope="node")
    with counting.started() as process:
        deadline = time.monotonic() + 100
        while counting.epochs_committed() < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=100) == 130, counting.log()
        assert descendants(process.pid) == []
    report = describe_store(open_store(str(tmp_path / "backup")))
    assert set(report.frames_by_cause) == {"flush"}
    assert report.damage == []
    store = open_store(str(tmp_path / "backup"))
    restored = Counter()
    history = store.read_commits().history
    for slot in range(2):
        for frame in recover_chain(store, history, "keyed_aggregate", slot, 10**6).frames:
            for batch in frame.parts["totals"]:
                restored.update(
                    dict(zip(*(batch[name].to_pylist() for name in ("k", "count")), strict=True))
                )
    assert report.last_epoch is not None
    done = (tables * 20)[: report.last_epoch + 1]
    assert restored == true_counts(done)
