"""Side by side: Tether's two doors, Spark's own ways, other systems, and the limits, on the same files.

Every scenario of ``bench/scenarios`` is one workload with its contenders; their rounds are interleaved,
every answer is checked before its time counts, and every repeat is kept as it ends, so that a run can be
resumed. Ratios are medians over rounds of the ratio within a round.
"""

from __future__ import annotations

import re
import shutil
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.contenders import find, other_systems
from bench.contenders.course import Course
from bench.harness import Experiment, Goal, say
from bench.results import FOLDER, ResultLog
from bench.scenario import Scenario, read_scenarios
from bench.streams import scratch
from tether.cli.session import open_session
from tether.core.errors import BadValueError
from tether.testing.slow_store import slow_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from bench.harness import Measurement

SCENARIOS = Path(__file__).parent / "scenarios"
FIRST = (
    "keyed-sum.toml",
    "slow-store.toml",
    "heavy-hitters.toml",
    "word-count.toml",
    "top-k.toml",
    "join.toml",
    "logistic-regression.toml",
)
"""What is run unless a scenario is named: one file for each algorithm, and all that goals are about."""
OURS = ("tether-operators", "tether-store")


def run(
    *, quick: bool, seed: int, scenario: str | None = None, resume: bool = False
) -> dict[str, Any]:
    """Measure the scenarios of a file, or one of each algorithm."""
    files = [Path(scenario)] if scenario else [SCENARIOS / name for name in FIRST]
    found = [
        msgspec.structs.replace(one, seed=one.seed + seed)
        for path in files
        for one in read_scenarios(path, quick=quick)
    ]
    for one in found:
        for name in one.contenders:
            find(one.algorithm, name)  # unknown ones are told before anything runs
    with scratch() as directory:
        open_spark = _session(found, directory)
        experiments = {
            one.name: _measure(one, open_spark, directory / str(number), quick, resume)
            for number, one in enumerate(found)
        }
    return _report(found, experiments)


def _session(scenarios: list[Scenario], directory: Path) -> Callable[[], SparkSession]:
    """Opens the one session of all scenarios when the first contender asks for it."""
    latencies = {one.store_latency for one in scenarios if one.store_latency}
    if len(latencies) > 1:
        raise BadValueError(
            f"One run cannot have stores of {len(latencies)} latencies.",
            why="A Spark session has one slow file system.",
            do="Run the scenarios one after another.",
        )
    cores = max(one.slots for one in scenarios)

    @cache  # opening it again would set it back, while a contender's own settings are in force
    def open_spark() -> SparkSession:
        settings = (
            slow_settings(latencies.copy().pop(), directory / "requests") if latencies else {}
        )
        return open_session(f"local[{cores},4]", memory="8g", conf=settings)

    return open_spark


def _measure(
    scenario: Scenario,
    open_spark: Callable[[], SparkSession],
    folder: Path,
    quick: bool,
    resume: bool,
) -> Experiment:
    course = Course(scenario, folder, open_spark)
    name = re.sub(r"[^a-z0-9.]+", "-", scenario.name) + ("-quick" if quick else "") + ".jsonl"
    log = ResultLog(FOLDER / "peers" / name, scenario.plain(), resume=resume)
    experiment = Experiment(
        f"peers, {scenario.name}", seed=scenario.seed, repeats=scenario.repeats, log=log
    )
    contenders: dict[str, Callable[[], Measurement]] = {
        name: partial(find(scenario.algorithm, name), course) for name in scenario.contenders
    }
    say(f"{scenario.name}: {len(contenders)} contenders, {scenario.repeats} rounds")
    experiment.measure(contenders)
    shutil.rmtree(folder, ignore_errors=True)  # input files of a scenario that is over take room
    return experiment


def _report(scenarios: list[Scenario], experiments: dict[str, Experiment]) -> dict[str, Any]:
    """One report over all scenarios."""
    parts = {
        one.name: experiments[one.name].report([], one.plain()) | {"scenario": one}
        for one in scenarios
    }
    first = next(iter(parts.values()))
    return {
        "experiment": "peers",
        "environment": first["environment"] | _versions(),
        "results": [
            {"scenario": name, **_names(part["scenario"], result["contender"]), **result}
            for name, part in parts.items()
            for result in part["results"]
        ],
        "skipped": {
            f"{name}: {contender}": why
            for name, part in parts.items()
            for contender, why in part["skipped"].items()
        },
        "goals": [goal.plain() for goal in _goals(scenarios, experiments)],
    }


def _names(scenario: Scenario, name: str) -> dict[str, str]:
    """How reports show a contender."""
    found = find(scenario.algorithm, name)
    return {"kind": found.kind, "label": found.label}


def _versions() -> dict[str, str]:
    found = other_systems.versions()
    for name in ("polars", "duckdb"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _goals(scenarios: list[Scenario], experiments: dict[str, Experiment]) -> list[Goal]:
    """The goals that are about one of the scenarios."""
    (ours, store), rocksdb = OURS, "spark-rocksdb"
    found: dict[str, Experiment] = {}
    for one in scenarios:
        what = "slow store" if one.store_latency else one.algorithm
        found.setdefault(what, experiments[one.name])
    goals: list[Goal] = []
    if plain := found.get("keyed-sum"):
        goals += [
            plain.goal("peers.operators_to_stateless", "<=", 0.7, ours, "spark-stateless"),
            plain.goal("peers.operators_to_rocksdb_changelog", ">=", 5, rocksdb, ours),
            plain.goal("peers.store_to_rocksdb_changelog", ">=", 3.5, rocksdb, store),
            plain.goal("peers.to_default_store", ">=", 2.5, "spark-default", ours),
            plain.goal("peers.to_pyflink_checkpointed", ">=", 5, "flink-table-hashmap", ours),
        ]
    if slow := found.get("slow store"):
        goals += [slow.goal("peers.slow_store_to_rocksdb_changelog", ">=", 5, rocksdb, ours)]
    if heavy := found.get("heavy-hitters"):
        goals += [heavy.goal("peers.hh_to_one_process_limit", "<=", 4, ours, "numpy")]
    return goals
