"""Executors killed under a query that heals: what is wrong afterwards, and what it costs meanwhile.

A query on two executors reads epochs at about half the pace that it can. Then one executor gets SIGKILL,
with twenty epochs since the newest snapshot; when the query is whole again, another one, and so on. Side
by side: today's rewind, which reads them all again before it answers; a barrier with ``meanwhile``,
which answers tentatively while its twin does that; and an approximate query that heals. Last, what
``heal`` costs a query that loses nothing.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import tether
from bench.executor_kills import open_cluster
from bench.harness import Experiment, Goal, Measurement, say
from bench.heal_kills import KEYS, SLOTS, Subject, epochs_of, start
from bench.results import FOLDER, ResultLog
from bench.streams import epoch_times, scratch
from tether.testing.epochs import write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WARM_UP = 3
BEHIND = 20
"""Epochs that a kill finds since the newest snapshot."""
BLOCKS = {"rewind": 4, "meanwhile": 5, "heal": 5}
"""Queries of each kind, in turns."""
KILLS = {"rewind": 1, "meanwhile": 3, "heal": 3}
"""Kills of one query, one after the other: few, for what is interrupted is measured again."""
ALONE = 4
"""Kills of a query that nobody heals: what its epochs cost without a twin, while an executor is new."""


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    """Kill, watch and compare; then the cost without a kill.

    Args:
        quick: One block with few kills, on small epochs.
        seed: Of rows and kills.
        resume: Go on with a run that was interrupted: what has been measured is not measured again.
    """
    rows = 5_000 if quick else 20_000
    blocks = dict.fromkeys(BLOCKS, 1) if quick else BLOCKS
    name = f"heal{'-quick' if quick else ''}.jsonl"
    identity = {"seed": seed, "rows": rows, "kills": KILLS, "behind": BEHIND}
    log = ResultLog(FOLDER / "heal" / name, identity, resume=resume)
    with scratch() as directory:
        session = open_cluster(
            directory,
            locality_wait="60s",
            # The one that is left can take all slots: what is measured is the twin, not half a cluster.
            cores=SLOTS,
            conf={
                "spark.scheduler.mode": "FAIR",
                # An executor lives for half a minute here: Java's second compiler would take a core from
                # the others, and never give it back.
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                # Both go back as far as there are epochs since the first snapshot.
                "spark.sql.streaming.minBatchesToRetain": "500",
            },
        )
        outcomes = _struck(session, directory, log, blocks=blocks, rows=rows, seed=seed)
        alone = _alone(session, directory, log, number=2 if quick else ALONE, rows=rows, seed=seed)
        cost = Experiment("heal", seed=seed, repeats=1 if quick else 3, log=log)
        write_epochs(directory / "in", epochs_of((30 if quick else 60) + WARM_UP, rows, seed))
        plain = tether.Approximate(1e6)
        healing = tether.Approximate(1e6, heal=tether.Barrier(30))
        one = partial(_measure, session, directory / "in", rows)
        cost.measure({"without": partial(one, plain), "with heal": partial(one, healing)})
        session.stop()
    total = {name: number * blocks[name] for name, number in KILLS.items()}
    report = cost.report(_goals(outcomes, cost), _workload(rows, total))
    report["kills"] = outcomes | {"alone": alone}
    report["epochs_to_those_before"] = {
        "beside a twin": _slowdown(outcomes["meanwhile"]),
        "beside a twin, healing": _slowdown(outcomes["heal"]),
        "no twin, executor being replaced": _slowdown(alone, "before_twin"),
        "no twin, executor new": _slowdown(alone),
    }
    return report


def _alone(
    session: SparkSession,
    directory: Path,
    log: ResultLog,
    *,
    number: int,
    rows: int,
    seed: int,
) -> list[dict[str, Any]]:
    """The same kills where nobody heals."""

    def struck() -> dict[str, Any]:
        subject = Subject(session, directory, "alone", seed, rows)
        found = [subject.strike(seed + kill, BEHIND) for kill in range(number)]
        subject.end()
        return {"kills": found}

    kills: list[dict[str, Any]] = log.once("alone", 0, struck)["kills"]
    return kills


def _struck(
    session: SparkSession,
    directory: Path,
    log: ResultLog,
    *,
    blocks: dict[str, int],
    rows: int,
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """What each kill of each kind of query came to."""
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in KILLS}
    for block in range(max(blocks.values())):
        for name, number in KILLS.items():
            if block >= blocks[name]:
                continue
            known = log.get(name, block)
            if known is None:
                first = seed + block * number
                subject = Subject(session, directory, name, first, rows)
                found: list[dict[str, Any]] = []
                for kill in range(first, first + number):
                    got = {"seed": float(kill), **subject.strike(kill, BEHIND)}
                    found.append(got)
                    say(f"heal: query {block + 1} of {blocks[name]}, {name}: {got}")
                found[-1] |= subject.end()
                right = not found[-1]["wrong"]
                known = Measurement([1e3 * one["gap"] for one in found], right, {"kills": found})
                log.add(name, block, known)
            outcomes[name] += known.detail["kills"]
    return outcomes


def _workload(rows: int, kills: dict[str, int]) -> dict[str, Any]:
    return {
        "rows": rows,
        "keys": KEYS,
        "slots": SLOTS,
        "epochs_since_snapshot": BEHIND,
        "kills": kills,
    }


def _goals(outcomes: dict[str, list[dict[str, Any]]], cost: Experiment) -> list[Goal]:
    healed = outcomes["meanwhile"] + outcomes["heal"]

    def total(name: str) -> float:
        return sum(one.get(name, 0.0) for one in healed)

    def middle(name: str, whose: str) -> float:
        return statistics.median(one[name] for one in outcomes[whose])

    gap = middle("gap", "meanwhile") / middle("gap", "rewind")
    return [
        Goal("heal.wrong_after", "<=", 0, total("wrong")),
        Goal("heal.stable_withdrawn", "<=", 0, total("withdrawn")),
        Goal("heal.output_gap", "<=", 0.3, gap),
        Goal("heal.main_slowdown", "<=", 1.6, _slowdown(outcomes["meanwhile"])),
        Goal("heal.catch_up", ">=", 0.001, middle("gained", "meanwhile")),
        Goal("heal.cost_without_failure", ">=", 0.97, cost.ratio("without", "with heal")),
    ]


def _slowdown(kills: list[dict[str, Any]], when: str = "beside_twin") -> float:
    """Epochs of the query while its twin ran, to those before the kill: the median of all of them."""
    every = [time / one["epoch_before"] for one in kills for time in one.get(when, ())]
    return statistics.median(every) if every else 1.0


def _measure(session: SparkSession, source: Path, rows: int, policy: Any) -> Measurement:
    with scratch() as directory:
        (directory / "in").symlink_to(source)
        query = start(session, directory, policy, None)
        query.processAllAvailable()
        total = query.table("totals").agg({"count": "sum"}).collect()[0][0]
        times = epoch_times([p for p in query.recentProgress if p["numInputRows"]], WARM_UP)
        query.stop()
    files = sum(1 for _ in source.glob("*.parquet"))
    return Measurement([statistics.fmean(times)], answer_checked=total == files * rows)
