"""Finding Spark's Python workers among processes."""

import pytest

from tether.testing import processes

TREE = {
    2: (1, "java -cp jars -Dspark.python.daemon.module=tether.spark.tasks.worker_daemon Submit"),
    3: (2, "python -m tether.spark.tasks.worker_daemon pyspark.worker"),
    4: (3, "python -m tether.spark.tasks.worker_daemon pyspark.worker"),
    5: (2, "python -m pyspark.daemon"),
    6: (5, "python -m pyspark.daemon"),
    7: (1, "python -m pyspark.daemonic"),
}


@pytest.fixture(autouse=True)
def tree(monkeypatch):
    monkeypatch.setattr(processes, "descendants", lambda _: list(TREE))
    monkeypatch.setattr(processes, "command_of", lambda pid: TREE[pid][1])
    monkeypatch.setattr(processes, "parent_of", lambda pid: TREE[pid][0])


def test_workers_are_children_of_daemons():
    """The JVM has the daemon's name among its settings, and is none."""
    assert sorted(processes.python_workers(1)) == [4, 6]
