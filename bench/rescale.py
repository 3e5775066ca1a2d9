"""Another number of slots while a query runs: is any answer wrong afterwards, and how long is the pause?

Histories of moves and failures are random: on the stand-in for Spark, where the driver is killed at the
steps of a move too, and on Spark, where a SIGKILL hits the driver. The pause is that of a query with a
million keys, from 2 slots to 4: the longest time between two epochs' outputs around the move, less
what an epoch takes anyway, told as a multiple of an epoch.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from bench.harness import Goal, Measurement, environment, say
from bench.rescale_lives import lived
from bench.results import FOLDER, ResultLog
from bench.streams import scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.fuzz import run as run_program
from tether.testing.fuzz.building import build_divisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYS = 1_000_000
ROWS = 400_000
LOADING, BEFORE, AFTER = 4, 8, 10
"""Epochs that bring every key in, and those before and after the move."""
BLOCK = 20
"""Simulated histories that are kept as one result."""


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    at_start = environment(seed, os.getloadavg()[0])
    identity = {"experiment": "rescale", "quick": quick, "seed": seed, "keys": KEYS, "rows": ROWS}
    name = f"rescale{'-quick' if quick else ''}-{seed}.jsonl"
    log = ResultLog(FOLDER / "rescale" / name, identity, resume=resume)

    def measured(contender: str, rounds: int, one: Callable[[int], Measurement]) -> None:
        for number in range(rounds):
            found = log.get(contender, number)
            if found is None:
                found = one(number)
                log.add(contender, number, found)
            runs.setdefault(contender, []).append(found)
            say(f"rescale: {contender} {number + 1} of {rounds}: {found.detail}")

    runs: dict[str, list[Measurement]] = {}
    with scratch() as directory:
        # What is timed goes first: a machine that has worked for minutes is slower.
        session = open_session("local[2,4]", memory="4g")
        source = directory / "in"
        write_epochs(source, _epochs(seed))
        _pause(session, source, directory / "warm-up")
        measured(
            "pause",
            2 if quick else 5,
            lambda number: _pause(session, source, directory / f"pause-{number}"),
        )
        session.stop()
        measured("simulated", (40 if quick else 200) // BLOCK, lambda n: _simulated(n, seed))
        measured(
            "real", 2 if quick else 10, lambda n: lived(directory / f"real-{n}", 1000 * seed + n)
        )
    pauses = [one.detail["pause_epochs"] for one in runs["pause"]]
    wrong = [one.detail["wrong"] for name in ("simulated", "real") for one in runs[name]]
    goals = [
        Goal("rescale.wrong_after", "<=", 0, sum(wrong)),
        Goal("rescale.pause_epochs", "<=", 5, statistics.median(pauses)),
    ]
    return {
        "experiment": "rescale",
        "environment": at_start,
        "results": [_result(name, found) for name, found in runs.items()],
        "goals": [goal.plain() for goal in goals],
    }


def _result(name: str, runs: list[Measurement]) -> dict[str, Any]:
    medians = [round(one.median_ms, 2) for one in runs]
    workload = {
        "pause": {"keys": KEYS, "rows": ROWS, "slots": "2 to 4"},
        "simulated": {"histories": BLOCK * len(runs)},
        "real": {"histories": len(runs), "fault": "SIGKILL of the driver"},
    }
    return {
        "contender": name,
        "workload": workload[name],
        "repeats": len(runs),
        "median_ms": statistics.median(medians),
        "spread_ms": [min(medians), max(medians)],
        "runs_ms": medians,
        "answer_checked": all(one.answer_checked for one in runs),
        "detail": {"each": [one.detail for one in runs]},
    }


def _epochs(seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    names = random.permutation(KEYS).astype(np.int64) * np.int64(2_654_435_761)
    for part in np.array_split(names, LOADING):
        yield pa.table({"k": part, "v": np.ones(len(part), np.int64)})
    for _ in range(BEFORE + AFTER):
        yield pa.table({"k": random.choice(names, ROWS), "v": np.ones(ROWS, np.int64)})


def _pause(session: SparkSession, source: Path, work: Path) -> Measurement:
    """Run through all epochs, with a move in the middle; a wrong answer is an error."""
    ends: dict[int, float] = {}
    moved, epochs = threading.Event(), LOADING + BEFORE + AFTER
    at = LOADING + BEFORE

    def output(rows: Any, epoch: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        ends[epoch] = time.perf_counter()
        if epoch == at:
            moved.set()

    query = (
        tether.stream(read_epochs(session, source, "k long, v long"))
        .apply(KeyedAggregate(sums=["v"]), key="k", parallelism=2, name="sums")
        .start(
            output,
            tolerance=tether.Approximate(max_state_error=4 * ROWS),
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
        )
    )
    try:
        moved.wait()
        began = time.perf_counter()
        query.rescale("sums", 4)
        took = time.perf_counter() - began
        query.processAllAvailable()
        slots = len(query.slots())
        total = query.table("totals").selectExpr("count(*)", "sum(count)").collect()[0]
    finally:
        query.stop()
    gaps = [ends[epoch] - ends[epoch - 1] for epoch in range(1, epochs)]
    # The move comes after the epoch in hand: in the gap before the next one, or the one after that.
    usual = statistics.median([*gaps[LOADING + 1 : at - 1], *gaps[at + 3 :]])
    pause = max(gaps[at - 1 : at + 3]) - usual
    right = (slots, *total) == (4, KEYS, KEYS + ROWS * (BEFORE + AFTER))
    if not right:
        raise AssertionError(f"the answer after the move is wrong: {slots} slots, {total}")
    detail = {
        "pause_epochs": round(pause / usual, 3),
        "epoch_ms": round(1000 * usual, 1),
        "pause_ms": round(1000 * pause, 1),
        "call_ms": round(1000 * took, 1),
    }
    return Measurement([1000 * gap for gap in gaps], answer_checked=True, detail=detail)


def _simulated(block: int, seed: int) -> Measurement:
    """Random programs with moves and failures, each answer of each epoch before the judge."""
    times, wrong, looked, off, refused = [], 0, 0, 0, 0
    for number in range(BLOCK):
        outcome = run_program(build_divisible(1_000_000 * seed + BLOCK * block + number))
        times.append(1000 * outcome.seconds)
        wrong += bool(outcome.findings)
        looked, off = looked + outcome.looked, off + len(outcome.looseness)
        refused += bool(outcome.ended)
        for finding in outcome.findings:
            say(f"rescale: history {BLOCK * block + number}: {finding}")
    detail = {"wrong": wrong, "answers": looked, "within_bound": off, "not_ended": refused}
    return Measurement(times, answer_checked=True, detail=detail)
