"""AF-Stream's Experiment 2 on word count: what a bound costs, from 1 to infinity.

For each Θ: speed against no backups at all, the part of the words that caused a backup, bytes written,
and the time that a slot's recovery takes. Beside it, how much of an update-heavy epoch goes into keeping
the divergence, for every primitive.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tether
from bench import divergence
from bench.harness import Experiment, Goal, Measurement
from bench.streams import epoch_times, scratch
from tether.algorithms.word_count import WordCount, words
from tether.chaos.faults import Fault
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SLOTS = 2
VOCABULARY = 200_000
WORDS_A_LINE = 10
SKEW = 1.1
WARM_UP = 3
BOUNDS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, math.inf)
THE_PAPERS = 1e4


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]", memory="4g")
    words_an_epoch = 300_000 if quick else 1_000_000
    epochs = WARM_UP + (6 if quick else 12)
    experiment = Experiment("thresholds", seed=seed, repeats=1 if quick else 3)
    with scratch() as directory:
        source = directory / "in"
        write_epochs(source, _lines(epochs, words_an_epoch, seed))
        truth = _truth(session, source)
        one = partial(_count, session, source, truth, epochs)
        bounds = [
            value for value in BOUNDS if not quick or value in (1.0, 10.0, THE_PAPERS, math.inf)
        ]
        contenders = {"no backups": lambda: one(tether.NoTolerance())}
        contenders |= {
            f"Θ = {bound:g}": partial(one, tether.Approximate(bound)) for bound in bounds
        }
        contenders["every touched entry, every epoch"] = partial(one, tether.MiniBatch())
        experiment.measure(contenders)
        # The goal is about a few per cent, so these two run in turn, more often than the rest.
        at = f"Θ = {THE_PAPERS:g}"
        close = Experiment("thresholds, speed", seed=seed, repeats=3 if quick else 7)
        close.measure({name: contenders[name] for name in ("no backups", at)})
    shares = divergence.measure(quick, seed)
    touched = experiment.runs["every touched entry, every epoch"][-1].detail["backup_bytes"]
    goals = [
        divergence.goal(shares),
        Goal(
            "thresholds.bytes_fraction",
            "<=",
            0.02,
            experiment.runs[at][-1].detail["backup_bytes"] / touched,
        ),
        Goal("thresholds.speed_at_1e4", ">=", 0.95, close.ratio("no backups", at)),
    ]
    report = experiment.report(
        goals,
        {"words": words_an_epoch, "vocabulary": VOCABULARY, "skew": SKEW, "epochs": epochs},
    )
    report["divergence_shares"] = shares
    return report


def _lines(epochs: int, count: int, seed: int) -> Iterator[pa.Table]:
    """Lines of words whose frequencies fall as 1/rank^skew, as in a natural text."""
    random = np.random.default_rng(seed)
    weights = np.arange(1, VOCABULARY + 1) ** -SKEW
    chances = weights / weights.sum()
    vocabulary = pa.array([f"word{rank:x}" for rank in range(VOCABULARY)])
    for _ in range(epochs):
        ranks = random.choice(VOCABULARY, count // WORDS_A_LINE * WORDS_A_LINE, p=chances)
        columns = [vocabulary.take(pa.array(part)) for part in ranks.reshape(WORDS_A_LINE, -1)]
        yield pa.table({"value": pc.binary_join_element_wise(*columns, " ")})


def _truth(session: SparkSession, source: Path) -> dict[str, int]:
    counts = words(session.read.parquet(str(source))).groupBy("word").count().toArrow()
    return dict(zip(counts["word"].to_pylist(), counts["count"].to_pylist(), strict=True))


def _count(
    session: SparkSession, source: Path, truth: dict[str, int], epochs: int, policy: Any
) -> Measurement:
    """All epochs but the last are timed; in the last both slots have lost their state."""
    with scratch() as directory:
        faults = [
            Fault(
                point="before-attach",
                marker=str(directory / f"lost-{slot}"),
                slot=slot,
                epoch=epochs - 1,
                action="forget",
            )
            for slot in range(SLOTS)
        ]
        query = (
            tether.stream(words(read_epochs(session, source, "value string")))
            .apply(WordCount(), key="word", parallelism=SLOTS)
            .start(
                tolerance=policy,
                backup=str(directory / "backup"),
                checkpoint=str(directory / "checkpoint"),
                faults=faults,
            )
        )
        query.processAllAvailable()
        answer = query.table("totals").toArrow()
        bound, totals, events = query.bound(), query.totals(), query.story()
        query.stop()
    counted = dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
    worst = max((abs(n - counted.get(word, 0)) for word, n in truth.items()), default=0)
    recoveries = [
        sum(cast("dict[str, float]", event.detail["seconds"]).values())
        for event in events
        if event.what == "recovery"
    ]
    times = epoch_times([p for p in query.recentProgress if p["numInputRows"]], WARM_UP)[:-1]
    detail = {
        "backups": totals["backups"],
        "backup_bytes": totals["backup_bytes"],
        "backups_per_word": totals["backups"] / sum(truth.values()),
        "recovery_seconds": max(recoveries, default=None),
        "error_after_losing_all": worst,
        "bound": bound.spent if math.isfinite(bound.spent) else "inf",
    }
    return Measurement(times, worst <= bound.spent, detail)
