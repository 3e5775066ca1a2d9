"""How long a plain stateful query stands still when an executor is killed, store by store."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.harness import Experiment, Measurement, say
from bench.sql_runs import (
    OURS,
    STORES,
    configure,
    start,
    violations,
    with_rows,
    wrong_rows,
)
from bench.streams import epoch_times, scratch
from tether.cli.session import open_session
from tether.sql.jar import jar_path, without_spaces
from tether.testing.cluster import standalone_cluster
from tether.testing.epochs import write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tether.testing.cluster import Cluster

KEYS = 200_000
ROWS = 100_000
EPOCHS = 7
KILL_AFTER = 3
"""Epochs before the kill; those after it show that the query goes on."""
SHARE = 0.4
"""Θ, as a share of the keys: a backup every few epochs."""
LONGEST_SECONDS = 120.0


def measure_kills(experiment: Experiment, seed: int) -> None:
    """Adds, for every store, the time that the epoch of the kill took beyond an ordinary one."""
    with scratch() as directory, standalone_cluster(directory / "cluster", workers=2) as cluster:
        source = directory / "in"
        write_epochs(source, _epochs(seed))
        session = open_session(
            cluster.url,
            conf={
                "spark.jars": str(without_spaces(jar_path())),
                "spark.executor.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                # The place of a store that is gone is waited for; that is Spark's, and long by default.
                "spark.locality.wait": "300ms",
            },
        )
        experiment.measure(
            {
                f"executor killed: {name}": partial(_kill, session, cluster, source, name)
                for name in STORES
            },
            warm_up=False,
        )
        session.stop()


def _epochs(seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    yield pa.table({"k": np.arange(KEYS), "v": np.ones(KEYS, dtype=np.int64)})
    for _ in range(EPOCHS - 1):
        yield pa.table({"k": random.integers(0, KEYS, ROWS), "v": random.integers(1, 9, ROWS)})


def _kill(session: SparkSession, cluster: Cluster, source: Path, name: str) -> Measurement:
    configure(session, name, budget=SHARE * KEYS)
    _await(lambda: len(cluster.executors()) == 2)
    with scratch() as directory:
        checkpoint = str(directory / "checkpoint")
        query = start(session, str(source), checkpoint)
        _await(lambda: len(with_rows(query)) >= KILL_AFTER)
        cluster.kill_executor()
        query.awaitTermination()
        progress = with_rows(query)
        times = epoch_times(progress, 1)
        pause = max(times[KILL_AFTER - 1 :]) - statistics.median(times)
        wrong = wrong_rows(session, source, checkpoint)
        within = wrong <= (SHARE * KEYS if name == OURS else 0)
        detail = {
            "epochs_ms": times,
            "wrong_rows": wrong,
            "bound_violations": violations(progress),
            "wrong_answers": 0 if within else 1,
        }
    say(f"  {name}: {pause:.0f} ms longer, {detail}")
    return Measurement([pause], within and len(progress) == EPOCHS, detail)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not get that far")
        time.sleep(0.02)
