"""A standalone cluster on loopback whose machines and executors are killed for real."""

from __future__ import annotations

import pytest

from tether.testing.cluster import standalone_cluster
from tether.testing.epochs import write_epochs
from tether.testing.processes import kill

from .commands import Counting
from .counting import l1_error, skewed_keys, true_counts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.long]


@pytest.mark.parametrize("victim", ["executor", "worker", "all executors"])
def test_a_killed_part_of_a_cluster_costs_at_most_the_bound(tmp_path, victim):
    tables = skewed_keys(epochs=8, rows=4000, keys=200, seed=9)
    write_epochs(tmp_path / "in", tables)
    with standalone_cluster(tmp_path / "cluster", workers=3) as cluster:
        counting = Counting(
            tmp_path, "approximate:max_state_error=3000", master=cluster.url, slots=3
        )
        with counting.started() as process:
            counting.await_epochs(3, process)
            if victim == "executor":
                cluster.kill_executor(0)
            elif victim == "worker":
                cluster.kill_worker(0)
            else:
                for pid in cluster.executors():
                    kill(pid)
            result = counting.finish(process)
        assert result is not None, counting.log() + cluster.logs()
        assert result["totals"]["losses"] >= 1
        error = l1_error(counting.answer(), true_counts(tables))
        assert error <= result["bound"]["spent"] <= 3000
        left = [process.poll() for process in cluster.workers]
    assert left.count(None) == (2 if victim == "worker" else 3)
