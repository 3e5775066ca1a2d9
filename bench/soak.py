"""``make soak``: a stream under random failures for a long while, watched for whatever grows.

A count runs in this process's Spark session. Every few seconds chance kills a Python worker, lets one
hang, takes a slot's arena away, or stops the query and starts it again. Memory, shared memory, file
handles, backups and epochs are sampled all the while; a robust slope says whether each stayed flat.
Whenever the query is stopped, an independent judge holds its counts against the truth and the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tether
from bench.harness import environment, say
from bench.soak_plots import draw
from bench.soak_samples import (
    MEASURES,
    flatness,
    megabytes_below,
    open_handles,
    python_megabytes,
)
from tether.algorithms.aggregate import KeyedAggregate
from tether.backup.opening import open_store
from tether.backup.recovery import recover_chain
from tether.cli.session import open_session
from tether.cli.watching import committed_epochs
from tether.core.ids import Epoch, each_slot
from tether.testing.injector import Injector
from tether.testing.judge import Failure, Measure, Told, judge
from tether.testing.processes import python_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
KEYS = 20_000
ROWS = 2_000
THETA = 100_000.0
EVERY = (3.0, 9.0)
"""Seconds between two strikes."""
SAMPLE_SECONDS = 2.0


class Soak:
    """The stream, its striker and its samples.

    Args:
        session: A local session.
        work: A directory for it.
        seed: Of all strikes.
    """

    def __init__(self, session: SparkSession, work: Path, seed: int) -> None:
        self._session, self._work = session, work
        self.injector = Injector(work / "strikes", seed=seed)
        self.strikes: dict[str, int] = {}
        self.restarts = 0
        self.samples: dict[str, list[float]] = {name: [] for name in ("seconds", *MEASURES)}
        self.losses = 0
        self._stops: list[tuple[int, Told]] = []
        """At each stop: the epochs so far, and the answer with what was told of it."""
        self._began = time.monotonic()
        self._query = self._start()

    def _start(self) -> Any:
        return (
            tether.stream(_rows(self._session))
            .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=SLOTS)
            .start(
                tolerance=tether.Approximate(max_state_error=THETA),
                backup=str(self._work / "backup"),
                checkpoint=str(self._work / "checkpoint"),
                arena_dir=str(self._work / "arena"),
                trigger={"processingTime": "200 milliseconds"},
            )
        )

    def strike(self) -> None:
        """One failure, as chance wants."""
        kinds = ["kill a Python worker"] * 4 + ["take an arena away"] * 3
        kinds += ["let a worker hang", "restart"]
        kind = self.injector.random.choice(kinds)
        workers = python_workers(os.getpid())
        if kind == "kill a Python worker" and workers:
            self.injector.kill(self.injector.random.choice(workers))
        elif kind == "let a worker hang" and workers:
            self.injector.hang(self.injector.random.choice(workers), 1.0)
        elif kind == "take an arena away":
            root = self._work / "arena" / f"tether-{os.geteuid()}"
            arenas = [path for path in root.glob("*") if path.is_dir()]
            if arenas:
                self.injector.remove(self.injector.random.choice(arenas))
        elif kind == "restart":
            self._restart()
        self.strikes[kind] = self.strikes.get(kind, 0) + 1

    def _restart(self) -> None:
        self._stop()
        self._query = self._start()
        self.restarts += 1

    def _stop(self) -> None:
        """Stop in good order, and note the answer and what was told of it."""
        # A slot that was struck last must have had the time to find out.
        settled = min((slot["epoch"] for slot in self._query.slots()), default=0) + 3
        while min((slot["epoch"] for slot in self._query.slots()), default=0) < settled:
            self._check_alive()
            time.sleep(0.1)
        self._query.stop()
        self.losses += self._query.totals()["losses"]
        bound = self._query.bound()
        told = Told(
            epoch=len(self._stops),
            answer={"": self._durable()},
            spent=bound.spent,
            ceiling=bound.ceiling,
        )
        self._stops.append((committed_epochs(self._work / "checkpoint"), told))

    def _durable(self) -> dict[int, int]:
        """The counts that a restart would begin with."""
        epochs = committed_epochs(self._work / "checkpoint")
        store = open_store(str(self._work / "backup"))
        history = store.read_commits().history
        found: dict[int, int] = {}
        for slot in each_slot(SLOTS):
            for frame in recover_chain(
                store, history, "keyed_aggregate", slot, Epoch(epochs)
            ).frames:
                for batch in frame.parts["totals"]:
                    keys, counts = batch["k"].to_pylist(), batch["count"].to_pylist()
                    found |= dict(zip(keys, counts, strict=True))
        return found

    def _check_alive(self) -> None:
        if self._query.exception() is not None:
            raise AssertionError(f"the stream stopped: {self._query.exception()}")

    def sample(self) -> None:
        """Look at everything once."""
        self._check_alive()
        jvm = self._session.sparkContext._jvm.java.lang
        jvm.System.gc()
        runtime = jvm.Runtime.getRuntime()
        last = self._query.lastProgress
        took = last["durationMs"]["triggerExecution"] / 1000 if last else float("nan")
        found = {
            "seconds": time.monotonic() - self._began,
            "python_mb": python_megabytes(os.getpid()),
            "jvm_heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / (1 << 20),
            "arena_mb": megabytes_below(self._work / "arena"),
            "handles": float(open_handles(os.getpid())),
            "backup_mb": megabytes_below(self._work / "backup"),
            "epoch_seconds": took,
        }
        if last:  # right after a restart there is no epoch yet
            for name, value in found.items():
                self.samples[name].append(value)

    def finish(self) -> dict[str, Any]:
        """Stop for good, and let the judge look at every stop."""
        self._stop()
        measure, ends = Measure("l1"), [epochs for epochs, _ in self._stops]
        rows = [range(a * ROWS, b * ROWS) for a, b in pairwise([0, *ends])]
        truths = list(_counted(rows))
        verdict = judge(
            rows,
            lambda _: truths,
            [Failure(epoch=0, what="chance")],
            [told for _, told in self._stops],
            {"": measure},
        )
        last = self._stops[-1][1]
        return {
            "epochs": ends[-1],
            "rows": ends[-1] * ROWS,
            "error": float(measure.distance(truths[-1][""], last.answer[""])),
            "bound_spent": last.spent,
            "bound_promised": THETA,
            "judged": verdict.looked,
            "outside": [str(one) for one in verdict.outside],
            "within_bound": not verdict.outside,
            "losses": self.losses,
        }


def _counted(rows: Iterable[Iterable[int]]) -> Iterator[dict[str, dict[int, int]]]:
    """What the counts must be at each stop."""
    counts: dict[int, int] = {}
    for part in rows:
        for value in part:
            key = value * 7919 % KEYS
            counts[key] = counts.get(key, 0) + 1
        yield {"": dict(counts)}


def _rows(session: SparkSession) -> DataFrame:
    """A source that gives the same rows again when it is asked again."""
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    source = source.option("numPartitions", 1).option("startTimestamp", 0)
    return source.load().selectExpr(f"value * 7919 % {KEYS} AS k")


def soak(work: Path, *, minutes: float, seed: int) -> dict[str, Any]:
    """Run it; the report."""
    load = os.getloadavg()[0]
    session = open_session(f"local[{SLOTS},100]", app="tether soak", memory="1g")
    soaking = Soak(session, work, seed)
    stopping, broken = threading.Event(), []

    def watch() -> None:
        while not stopping.wait(SAMPLE_SECONDS):
            try:
                soaking.sample()
            except Exception as error:
                broken.append(error)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until and not broken:
        soaking.injector.now_and_then(soaking.strike, seconds=20, every=EVERY)
        left = until - time.monotonic()
        say(f"soak: {left:.0f} s left, strikes so far: {soaking.strikes}")
    stopping.set()
    watcher.join(60)
    if broken:
        raise broken[0]
    answer = soaking.finish()
    session.stop()
    verdicts = {
        name: flatness(soaking.samples["seconds"], soaking.samples[name], absolute)
        for name, (_, _, absolute) in MEASURES.items()
    }
    return {
        "experiment": "soak",
        "environment": environment(seed, load),
        "minutes": minutes,
        "strikes": soaking.strikes,
        "answer": answer,
        "measures": {
            name: {
                "what": MEASURES[name][0],
                "unit": MEASURES[name][1],
                "median": round(verdict.median, 3),
                "growth": round(verdict.growth, 3),
                "allowed": round(verdict.allowed, 3),
                "flat": verdict.flat,
            }
            for name, verdict in verdicts.items()
        },
        "flat": all(verdict.flat for verdict in verdicts.values()),
        "samples": soaking.samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A stream under random failures, watched.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="for the report and plots")
    chosen = parser.parse_args()
    say(f"soak: seed {chosen.seed}, {chosen.minutes:g} minutes")
    with tempfile.TemporaryDirectory(prefix="tether-soak-", dir="/dev/shm") as name:
        report = soak(Path(name), minutes=chosen.minutes, seed=chosen.seed)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "soak.json").write_text(json.dumps(report))
    draw(report, chosen.out / "soak.svg")
    print(f"strikes: {report['strikes']}; answer: {report['answer']}")
    for name, found in report["measures"].items():
        verdict = "flat" if found["flat"] else "GROWS"
        print(
            f"{name:14} median {found['median']:10.2f} {found['unit']:2} growth "
            f"{found['growth']:+8.2f} (allowed {found['allowed']:.2f}): {verdict}"
        )
    sys.exit(0 if report["flat"] and report["answer"]["within_bound"] else 1)


if __name__ == "__main__":
    main()
