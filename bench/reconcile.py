"""Several inputs through SUnion against a plain union of the same files; and how soon a reader switches.

DPC 2005, §5: what serialising costs (Table 3), and what a dead upstream replica costs its reader. With
``--resume`` a run that was interrupted goes on: everything is kept as it ends.
"""

from __future__ import annotations

import itertools
import statistics
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

import tether
from bench.harness import Experiment, Goal, say
from bench.results import FOLDER, ResultLog, file_name
from bench.silence_figures import ALPHA, WAYS, X, figure_runs, warm_up
from bench.silences import silenced
from bench.streams import scratch
from bench.sunion import INPUTS, add, through_sunion, through_union, writer_of, written_inputs
from tether.cli.session import open_session
from tether.sources.sunion.offsets import end_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUNION, UNION = "SUnion", "plain union"


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    session = open_session("local[2,4]", memory="4g")
    rows, entries = (400_000, 6) if quick else (1_000_000, 10)
    identity = {"seed": seed, "rows": rows, "entries": entries, "x": X, "alpha": ALPHA}
    stem = file_name("reconcile", quick=quick)
    log = ResultLog(FOLDER / "reconcile" / f"{stem}.jsonl", identity, resume=resume)
    experiment = Experiment("reconcile", seed=seed, repeats=3 if quick else 7, log=log)
    with scratch() as directory:
        # Made when it is asked for: a run that goes on where it stopped may not need it.
        written = cache(partial(written_inputs, directory, rows, entries, seed))
        files = INPUTS * rows * entries
        experiment.measure(
            {
                SUNION: lambda: through_sunion(session, written(), files),
                UNION: lambda: through_union(session, written(), files),
            }
        )
    delays = [
        log.once("delay by bucket", number, partial(_delays, session, bucket, seed))
        for number, bucket in enumerate((0.1, 0.5) if quick else (0.05, 0.1, 0.2, 0.5, 1.0))
    ]
    switched = _switch(session, log, repeats=2 if quick else 5)
    silences = _silences(session, log, quick=quick)
    figures = {} if quick else figure_runs(session, log)
    others = [each for name in ("figure_9", "figure_12") for each in figures.get(name, [])]
    goals = [
        Goal("reconcile.sunion_throughput", ">=", 0.8, experiment.ratio(UNION, SUNION)),
        Goal("reconcile.switch_epochs", "<=", 2, max(each["epochs"] for each in switched)),
        *_goals(silences, others),
    ]
    report = experiment.report(goals, {"rows": INPUTS * rows, "epochs": entries, "inputs": INPUTS})
    report["delay_by_bucket"], report["switches"] = delays, switched
    report["silences"] = silences
    if figures:
        report["figures"] = figures
    return report


# ---- a silent input under a query with state (Figures 9, 10 and 12) --------------------------------


def _silences(session: SparkSession, log: ResultLog, *, quick: bool) -> list[dict[str, Any]]:
    """Every way, for failures shorter and longer than αX."""
    runs = [(way, seconds) for way in WAYS for seconds in ((2, 6) if quick else (2, 6, 15, 60))]
    runs = runs[:4] + runs[6:8] if quick else runs
    found = []
    if any(log.get("silences", number) is None for number in range(len(runs))):
        warm_up(session)
    for number, ((failure, stabilization, reconcile), seconds) in enumerate(runs):
        policy = tether.Available(
            delay=X,
            alpha=ALPHA,
            failure=failure,
            stabilization=stabilization,
            reconcile=reconcile,
        )
        found.append(log.once("silences", number, partial(silenced, session, policy, seconds)))
        say(f"reconcile: {number + 1} of {len(runs)}: {found[-1]}")
    return found


def _goals(silences: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[Goal]:
    """What all single queries kept: those of Figure 10, and those with another X, state or rate."""
    # To suspend new rows while late ones are put right is viable for short failures only (§5.1).
    viable = [each for each in silences + others if each["stabilization"] != "suspend"]
    short = [each for each in silences + others if each["seconds"] < each["alpha_x"]]
    counted = {
        name: sum(each[name] for each in silences + others)
        for name in ("stable_withdrawn", "duplicates", "wrong_after")
    }
    unordered = sum(not each["in_order"] for each in silences + others)
    return [
        Goal(
            "reconcile.worst_delay_to_x",
            "<=",
            1.0,
            max(each["worst_delay_s"] / each["x"] for each in viable),
        ),
        Goal("reconcile.stable_withdrawn", "<=", 0, counted["stable_withdrawn"]),
        Goal("reconcile.duplicates", "<=", 0, counted["duplicates"]),
        Goal("reconcile.wrong_after", "<=", 0, counted["wrong_after"] + unordered),
        Goal(
            "reconcile.tentative_below_alpha_x",
            "<=",
            0,
            sum(each["tentative_rows"] for each in short),
        ),
    ]


# ---- delay against bucket size (Table 3) ----------------------------------------------------------


def _delays(
    session: SparkSession, bucket: float, seed: int, seconds: float = 8.0
) -> dict[str, Any]:
    """Three inputs of 1,000 rows a second each, written every 50 ms; time from a row to its epoch."""
    del seed
    delays: list[float] = []

    def each(batch: DataFrame, epoch: int) -> None:
        del epoch
        row = batch.selectExpr("avg(value)", "count(*)").collect()[0]
        if row[1]:
            delays.append(time.time() - row[0] / 1e6)

    with scratch() as directory:
        writers = [writer_of(directory / f"x{number}") for number in range(INPUTS)]
        paths = [str(directory / f"x{number}") for number in range(INPUTS)]
        stream = tether.subscribe(session, paths, reader="bench", bucket=bucket)
        query = (
            stream.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(directory / "ck"))
            .start()
        )
        try:
            end = time.time() + seconds
            for epoch in itertools.count():
                now = int(time.time() * 1e6)
                for writer in writers:
                    add(writer, epoch, now - np.arange(50) * 1_000, now, hashed=False)
                if time.time() > end:
                    break
                time.sleep(0.05)
        finally:
            query.stop()
    late = delays[3:]  # while the query starts, rows wait for it
    return {
        "bucket_s": bucket,
        "mean_delay_ms": round(1e3 * statistics.fmean(late), 1),
        "epochs": len(late),
    }


# ---- switching -------------------------------------------------------------------------------------


def _switch(session: SparkSession, log: ResultLog, repeats: int) -> list[dict[str, Any]]:
    """Two replicas of an input; the one that is followed stops. Epochs until rows of the other come."""
    return [log.once("switches", one, partial(_switch_once, session)) for one in range(repeats)]


def _switch_once(session: SparkSession) -> dict[str, Any]:
    given: list[tuple[float, int]] = []
    """When each epoch was given, and the replica that its rows came from."""

    with scratch() as directory:
        checkpoint = str(directory / "ck")

        def each(batch: DataFrame, epoch: int) -> None:
            batch.selectExpr("max(value)").collect()
            (taken,) = end_of(checkpoint, epoch).taken
            given.append((time.time(), taken.replica))

        writers = [writer_of(directory / name, replicated=True) for name in "ab"]
        stream = tether.subscribe(
            session, [[str(directory / name) for name in "ab"]], reader="bench", bucket=0.1
        )
        query = (
            stream.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint).start()
        )
        living, died_after = set(range(len(writers))), 0
        try:
            for epoch in itertools.count():
                if not died_after and len(given) >= 10:
                    died_after, followed = len(given), given[-1][1]
                    living.remove(followed)
                now = int(time.time() * 1e6)
                for number in living:
                    add(writers[number], epoch, now - np.arange(50) * 1_000, now, hashed=True)
                if died_after and len(given) >= died_after + 10:
                    break
                time.sleep(0.1)
        finally:
            query.stop()
    # An epoch that was at work when it died counts too.
    later = [
        at for at, (_, replica) in enumerate(given) if at >= died_after and replica != followed
    ]
    gaps = [two[0] - one[0] for one, two in itertools.pairwise(given[3:])]
    return {
        "epochs": later[0] - died_after + 1,
        "worst_gap_ms": round(1e3 * max(gaps), 1),
        "usual_gap_ms": round(1e3 * statistics.median(gaps), 1),
    }
