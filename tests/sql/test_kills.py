"""Real SIGKILLs: of Python workers, of executors on a cluster on loopback, of the driver."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.sql import queries
from tests.sql.job import GO_ON
from tests.sql.queries import Batches, Run, write_batches
from tests.sql.test_failures import KEYS, many_keys, truth

from tether.sql.checkpoint import describe_checkpoint
from tether.testing.processes import command_of, descendants, kill, kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chaos

ROUNDS = int(os.environ.get("TETHER_SQL_KILLS", "1"))
"""How often the random forms are repeated; more in long runs: TETHER_SQL_KILLS=10 make chaos."""
LONGEST_SECONDS = 400
HELD = 5
"""The batch that waits until somebody has been killed."""


class Job:
    """The query as a process; run it again to go on where it was killed."""

    def __init__(self, folder: Path, master: str, theta: float) -> None:
        self.folder, self.master, self.theta = folder, master, theta

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        arguments = [str(self.folder), self.master, str(self.theta), "sums", str(HELD)]
        command = [sys.executable, "-m", "tests.sql.job", *arguments]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                yield process
            finally:
                kill_all(process.pid)
                process.wait()

    def finish(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        said, _ = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 0, (self.folder / "log").read_text()[-4000:]
        return json.loads(said.splitlines()[-1])

    def wait_for_commits(self, process: subprocess.Popen[str], number: int) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        commits = self.folder / "checkpoint" / "commits"
        while len([p for p in commits.glob("*") if p.name.isdigit()]) < number:
            assert process.poll() is None, (self.folder / "log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)


def with_all_keys_at_the_end(batches: Batches) -> Batches:
    return [*batches, [(0, key, 0) for key in range(KEYS)]]


def wrong_keys(result: dict[str, Any], batches: Batches) -> int:
    last = result["output"][max(result["output"], key=int)]
    found = {int(row[0]): int(row[1]) for row in last}
    assert len(found) == KEYS
    return sum(found[key] != total for key, total in truth(batches).items())


@pytest.mark.long
@pytest.mark.parametrize("theta", [120.0] if ROUNDS == 1 else [0.0, 120.0])
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_driver_that_is_killed_loses_no_more_than_its_bound(
    tmp_path: Path, theta: float, number: int
) -> None:
    batches = many_keys(6)
    write_batches(tmp_path, with_all_keys_at_the_end(batches))
    job = Job(tmp_path, "local[2,4]", theta)
    with job.started() as process:
        job.wait_for_commits(process, random.Random(number).randint(2, 4))
        process.send_signal(signal.SIGKILL)
        kill_all(process.pid)
    (tmp_path / GO_ON).touch()
    with job.started() as process:
        result = job.finish(process)
    metrics = result["metrics"]
    assert sum(metrics["tetherRestores"]) > 0
    assert wrong_keys(result, batches) <= metrics["tetherBound"][-1] <= theta
    assert max(metrics["over"]) <= 0


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("number", range(ROUNDS))
def test_an_executor_that_is_killed_loses_no_more_than_its_bound(
    tmp_path: Path, number: int
) -> None:
    batches = many_keys(8)
    write_batches(tmp_path, with_all_keys_at_the_end(batches))
    job = Job(tmp_path, "local-cluster[2,1,512]", 240.0)
    with job.started() as process:
        job.wait_for_commits(process, random.Random(number).randint(2, 4))
        executors = [
            pid
            for pid in descendants(process.pid)
            if "CoarseGrainedExecutorBackend" in command_of(pid)
        ]
        assert len(executors) == 2
        assert kill(executors[number % 2])
        (tmp_path / GO_ON).touch()
        result = job.finish(process)
    metrics = result["metrics"]
    assert sum(metrics["tetherRestores"]) > 0
    assert wrong_keys(result, batches) <= metrics["tetherBound"][-1] <= 240
    assert max(metrics["over"]) <= 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("master", "end"),
    [
        ("local[2,4]", "exit"),
        ("local[2,4]", "spark"),
        pytest.param("local-cluster[2,1,512]", "stop", marks=pytest.mark.cluster),
        pytest.param("local-cluster[2,1,512]", "exit", marks=pytest.mark.cluster),
    ],
)
def test_a_process_that_ends_in_good_order_leaves_everything_behind(
    tmp_path: Path, master: str, end: str
) -> None:
    write_batches(tmp_path, many_keys(3))
    command = [sys.executable, "-m", "tests.sql.ending_job", str(tmp_path), master, end]
    done = subprocess.run(command, timeout=LONGEST_SECONDS, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    deadline = time.monotonic() + LONGEST_SECONDS
    # Executors end by themselves, after their driver.
    while not all(
        store.newest_version == 3
        for store in describe_checkpoint(str(tmp_path / "checkpoint")).stores
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    report = describe_checkpoint(str(tmp_path / "checkpoint"), verify=True)
    assert [store.damage for store in report.stores] == [(), ()]


@pytest.mark.long
def test_a_python_worker_that_is_killed_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = many_keys(3)
    for side in ("spark", "tether"):
        write_batches(tmp_path / side, batches)
    theirs = Run(spark, "grouped map", tmp_path / "spark").go()
    struck = tmp_path / "struck"
    count_group = queries._count_group

    def killing(key: Any, frames: Any, state: Any) -> Any:
        if key[0] == 7 and not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from count_group(key, frames, state)

    monkeypatch.setattr(queries, "_count_group", killing)
    ours = Run(spark, "grouped map", tmp_path / "tether").go(10_000)
    assert struck.exists()
    assert ours.output == theirs.output
    assert sum(ours.metric("tetherFailures")) == 0
