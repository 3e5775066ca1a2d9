"""A standalone cluster on loopback whose machines and executors are killed, hung and cut off."""

from __future__ import annotations

import pytest
from tests.refusals import or_skip
from tests.spark.commands import Counting, from_the_start
from tests.spark.counting import l1_error, skewed_keys, true_counts

from tether.testing.bundle import explained_run
from tether.testing.cluster import FAST_DETECTION, standalone_cluster
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector
from tether.testing.networks import cuttable_host

pytestmark = [
    *(pytest.mark.spark, pytest.mark.cluster, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(600),
]

WORKERS = 3
THETA = 3000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One for all: starting its processes takes longer than most of the tests."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS) as running:
        yield running


@pytest.fixture
def whole(cluster):
    """The cluster, its lost machines replaced."""
    while cluster.living_workers() < WORKERS:
        cluster.start_worker()
    return cluster


def struck_after_three_epochs(
    cluster, work, strike, *, scope="executor", epochs=8, conf=FAST_DETECTION
):
    """Run a count; strike once three epochs are committed; what it said, and its error."""
    tables = skewed_keys(epochs=epochs, rows=4000, keys=200, seed=9)
    write_epochs(work / "in", tables)
    injector = Injector(work / "strikes", seed=9)
    counting = Counting(
        work,
        f"approximate:max_state_error={THETA}",
        master=cluster.url,
        slots=WORKERS,
        arena_scope=scope,
        conf=conf | from_the_start(WORKERS),
    )
    stories = []
    with explained_run(work, injector=injector, stories=stories, logs=[cluster.scratch]):
        with counting.started() as process:
            counting.await_epochs(3, process)
            strike(injector)
            result = counting.finish(process)
        assert result is not None, counting.log() + cluster.logs(1000)
        stories += result["story"]
        error = l1_error(counting.answer(), true_counts(tables))
        assert error <= result["bound"]["spent"] <= THETA
        assert counting.left_behind() == []
    return result


@pytest.mark.parametrize("victim", ["executor", "worker", "all executors"])
def test_a_killed_part_of_a_cluster_costs_at_most_the_bound(whole, tmp_path, victim):
    def strike(injector):
        if victim == "worker":
            injector.kill_tree(whole.workers[-1].pid)
            whole.workers[-1].wait(120)
        elif victim == "executor":
            injector.kill(whole.executors()[0])
        else:
            for pid in whole.executors():
                injector.kill(pid)

    before = whole.living_workers()
    result = struck_after_three_epochs(whole, tmp_path, strike)
    assert result["totals"]["losses"] >= (WORKERS if victim == "all executors" else 1)
    assert whole.living_workers() == before - (victim == "worker")


@pytest.mark.parametrize("scope", ["executor", "node"])
@pytest.mark.parametrize("seconds", [1.0, 15.0])
def test_an_executor_that_hangs_is_waited_for_or_replaced(whole, tmp_path, scope, seconds):
    """One second is a pause; fifteen are a death, after which the dead one wakes up again."""

    def strike(injector):
        injector.hang(whole.executors()[0], seconds)

    # With fast detection, a busy machine alone would make deaths of pauses.
    conf = FAST_DETECTION if seconds > 4 else {}
    result = struck_after_three_epochs(whole, tmp_path, strike, scope=scope, epochs=12, conf=conf)
    if seconds < 4 or scope == "node":
        assert result["totals"]["losses"] == 0
    else:
        assert result["totals"]["losses"] >= 1


def test_a_machine_whose_network_is_cut_costs_at_most_the_bound(tmp_path):
    with (
        or_skip(cuttable_host()) as host,
        standalone_cluster(tmp_path / "cluster", workers=2, host=host.outside) as cluster,
    ):
        cluster.start_worker(host=host.inside, launcher=host.launcher)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_LOCAL_IP", host.outside)
            result = struck_after_three_epochs(cluster, tmp_path, lambda _: host.cut(), epochs=12)
        assert result["totals"]["losses"] >= 1
