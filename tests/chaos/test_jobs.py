"""The ``tether`` command killed again and again, and restarted on the same directories."""

from __future__ import annotations

import random
import signal
from collections import Counter

import pytest
from tests.spark.commands import LONGEST_SECONDS, Counting
from tests.spark.counting import l1_error, skewed_keys, true_counts

from tether.backup.inspect import describe_store
from tether.backup.opening import open_store
from tether.backup.recovery import recover_chain
from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

POLICIES = {
    "approximate": "approximate:max_state_error=1000",
    "mini-batch": "mini-batch",
    "upstream-backup": "upstream-backup:state_every=0.4",
    "barrier-sync": "barrier:interval=2epochs,mode=sync",
    "barrier-async": "barrier:interval=2epochs,mode=async",
}


def counting(work, policy, *, epochs=6, **options):
    tables = skewed_keys(epochs=epochs, rows=2000, keys=150, seed=11)
    write_epochs(work / "in", tables)
    return Counting(work, policy, **options), tables, Injector(work / "strikes", seed=11)


def check_answer(job, tables, result, policy):
    """Against the truth, for the keys that the last run has emitted."""
    assert result is not None, job.log()
    answer, truth = job.answer(), true_counts(tables)
    assert answer
    error = l1_error(answer, {key: truth[key] for key in answer})
    spent = result["bound"]["spent"]
    if policy == "approximate":
        assert error <= spent <= 1000
    else:
        assert (error, spent) == (0, 0)
    assert job.left_behind() == []
    return error


def test_a_killed_driver_and_one_stopped_by_ctrl_c_lose_nothing(tmp_path):
    """The arenas outlive the first, which had not let Spark commit; the second makes all durable."""
    policy = "approximate:max_state_error=1000000"
    job, tables, injector = counting(tmp_path, policy, epochs=100, arena_scope="node")
    injector.at("before-spark-commit", "kill", epoch=3)
    with explained_run(tmp_path, injector=injector):
        assert job.run(injector.faults) is None
        assert [strike.what for strike in injector.struck()] == ["kill at before-spark-commit"]
        assert job.left.processes_after(120) == []
        with job.started(injector.faults) as process:
            job.await_epochs(5, process)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=LONGEST_SECONDS) == 130, job.log()
        assert job.left_behind() == []
        store = open_store(str(tmp_path / "backup"))
        report = describe_store(store)
        assert set(report.frames_by_cause) == {"flush"}  # so nothing was lost on the way
        assert report.damage == []
        assert report.last_epoch is not None
        restored = Counter()
        history = store.read_commits().history
        for slot in range(2):
            for frame in recover_chain(store, history, "keyed_aggregate", slot, 10**6).frames:
                for batch in frame.parts["totals"]:
                    columns = (batch[name].to_pylist() for name in ("k", "count"))
                    restored.update(dict(zip(*columns, strict=True)))
        assert restored == true_counts(tables[: report.last_epoch + 1])


@pytest.mark.long
@pytest.mark.timeout(900)  # a life takes half a minute on a slow machine
@pytest.mark.parametrize("name", POLICIES)
def test_ten_failures_of_the_whole_system_in_a_row(tmp_path, record_property, name):
    """Everything is killed at a random moment, with all memory, and started again; ten times."""
    record_property("chaos", (name, "kill everything ten times", 11))
    job, tables, injector = counting(tmp_path, POLICIES[name], epochs=26)
    chance = random.Random(11)
    with explained_run(tmp_path, injector=injector):
        for _ in range(10):
            with job.started() as process:
                job.await_epochs(job.epochs_committed() + chance.choice([1, 2]), process)
                injector.kill_tree(process.pid)
        assert len(injector.struck()) == 10
        result = job.run()
        error = check_answer(job, tables, result, name)
        if name == "approximate":
            recoveries = [e["detail"] for e in result["story"] if e["what"] == "recovery"]
            assert max(detail["failures"] for detail in recoveries) >= 5
            assert min(detail["theta"] for detail in recoveries) <= 1000 / 4 / 2**5
            assert error > 0  # with so many losses, or this shows nothing
