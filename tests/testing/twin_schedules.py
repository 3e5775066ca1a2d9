"""A query on the stand-in for Spark that loses slots and gets a twin; what its sink was given."""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa
from tests.testing.counting import Count, MergingCount

import tether
from tether.chaos.faults import is_holding, release
from tether.core.errors import TetherError
from tether.engine.query.runner import Runner
from tether.spark.running.remains import unfinished
from tether.testing.fuzz.meaning import home
from tether.testing.injector import Injector
from tether.testing.inprocess import EpochSource, LocalSession

SCHEMA = pa.schema([("k", pa.int64())])
EPOCHS = [[(7 * e + i) % 5 for i in range(6)] for e in range(12)]
TASK_TRIES = 4
"""How often the stand-in tries a task, as Spark does."""


class Job:
    """A count of keys, restartable, whose sink keeps what it was given in a file."""

    def __init__(self, work, policy):
        self.work, self.policy, self.operator = work, policy, Count()
        self.injector, self.epochs = Injector(work / "strikes"), EPOCHS

    def __call__(self, rows, epoch):
        got = sorted([row["k"], row["n"]] for row in rows.collect())
        self._tell(epoch=epoch, rows=got)

    def take_back(self, epoch):
        self._tell(back=epoch)

    def _tell(self, **what):
        with (self.work / "given").open("a") as file:
            file.write(json.dumps(what) + "\n")

    def start(self, policy=None, **options):
        self.session = LocalSession(home, batch_rows=4, faults=self.injector.faults)
        rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in self.epochs]
        self.source = EpochSource(self.session, rows, SCHEMA)
        return (
            tether.stream(self.source, replays=True)
            .apply(self.operator, key="k", parallelism=2)
            .start(
                self,
                tolerance=policy or self.policy,
                backup=str(self.work / "backup"),
                checkpoint=str(self.work / "checkpoint"),
                arena_dir=str(self.work / "arena"),
                faults=self.injector.faults,
                **options,
            )
        )

    def in_a_process_of_its_own(self):
        """Run to the end in a child; give how it ended: 0, or the signal that killed it."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                faulthandler.dump_traceback_later(60, exit=True)
                query = self.start()
                query.processAllAvailable()
                query.stop()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def given(self):
        lines = (self.work / "given").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def check(self, crashes=0):
        """The stable output of each epoch once, in order, and what a run without a loss gives.

        Only the epoch that was in hand when the driver was killed may come again, and alike.
        """
        given = self.given()
        assert [one for one in given if "back" in one] == []
        again = len(given) - len(EPOCHS)
        assert 0 <= again <= crashes
        counts: Counter[int] = Counter()
        first = {}
        for one in given:
            assert first.setdefault(one["epoch"], one["rows"]) == one["rows"]
        assert list(first) == list(range(len(EPOCHS)))
        for (_, rows), keys in zip(sorted(first.items()), EPOCHS, strict=True):
            counts.update(keys)
            assert rows == sorted([key, counts[key]] for key in set(keys))


TOLD = ("tentative", "twin", "twin-lost", "taken-over", "rewound", "no-twin")


def happened(query):
    return [event.what for event in query.story() if event.what in TOLD]


def to_the_end(job):
    query = job.start()
    query.processAllAvailable()
    assert query.healing() is None
    told = happened(query)
    query.stop()
    job.check()
    assert unfinished(str(job.work / "checkpoint")) is None
    return told


def merging(work, policy):
    """A query whose operator lets epochs come as one."""
    job = Job(work, policy)
    job.operator = MergingCount()
    return job


def epochs_as_one(monkeypatch):
    """Which epochs are run as one: the last before the first of them, and the last."""
    found, run = [], Runner.run_as_one

    def noted(runner, given, epoch):
        found.append((runner.committed_epoch, epoch))
        run(runner, given, epoch)

    monkeypatch.setattr(Runner, "run_as_one", noted)
    return found


def forget_while_main_stands(job, epoch):
    """Start a query whose slot 1 is lost before an epoch; by then the source has no rows from before."""
    held = job.injector.at("before-attach", "hold", slot=1, epoch=epoch)
    job.injector.at("before-attach", "forget", slot=1, epoch=epoch)
    query = job.start()
    errors = in_the_background(query)
    wait_for(lambda: is_holding(held))
    job.source.forgotten = epoch
    release(held)
    return query, errors


def store_down_for_twins(job, failures):
    """Let so many reads of a twin's fail, from when its slot 0 restores: main never loses that one."""
    held = job.injector.at("during-recovery", "hold", slot=0)
    reads = [job.injector.at("store-read", "fail") for _ in range(failures)]
    for fault in reads:
        Path(fault.marker).touch()  # as if it had struck

    def go_down():
        wait_for(lambda: is_holding(held))
        for fault in reads:
            Path(fault.marker).unlink()
        release(held)

    threading.Thread(target=go_down, daemon=True).start()


def in_the_background(query):
    """Let it work on a thread of its own; what it raises is in the list that is given."""
    errors = []

    def work():
        try:
            query.processAllAvailable()
        except (TetherError, RuntimeError) as error:
            errors.append(error)

    threading.Thread(target=work, daemon=True).start()
    return errors


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
