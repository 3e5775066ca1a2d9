"""Executors killed under copies: how soon output goes on, with a copy, without, and tentatively.

On a cluster of three executors on loopback a query counts keys in four slots, at about half of the pace
that it can. Then executors get SIGKILL, with a number of epochs since the newest snapshot (PPA 2016
§VI-A, figures 7, 8 and 10):

- *active*: every slot has a copy; one executor is killed. Seconds from the kill to the next output.
- *passive*: the same kill, of slots without a copy: all go back to the snapshot. Seconds from the kill
  to the output of an epoch that had not been given before.
- *half*: half of the slots have a copy, on an executor that stands by; both others are killed at once.
  Seconds from the kills to the first tentative output, and to the take-over of the twin.

Beside it, what copies cost without failures, and racks that fail in the simulator, at the paper's size
and at a thousand nodes (:mod:`bench.availability_racks`). With ``--resume`` a run that was
interrupted goes on: every failure is kept as it ends.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import tether
from bench.availability_racks import racks
from bench.harness import Experiment, Goal, Measurement, say
from bench.heal_kills import KEYS, epochs_of, where
from bench.results import FOLDER, ResultLog, file_name
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.spark.places.spreading import live_executors
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.processes import kill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EXECUTORS, SLOTS, WARM_UP = 3, 4, 3
SCHEMA = "k long"
SECONDS = 180.0
"""A machine that is busy with other things may take long to start an executor."""
INTERVAL = 45
"""Epochs between snapshots: the one that a kill goes back to is taken by hand."""
SHARES = {"active": 1.0, "passive": 0.25, "half": 0.5}
OVER = {"active": {"promoted", "recovery"}, "passive": {"rewound"}, "half": {"taken-over"}}
"""What tells that a failure is over. Nobody needs to be promoted where the epoch before the kill ended
with a snapshot, one from which copies are filled: lost slots are restored from it at once."""


def _policy(name: str) -> tether.PartiallyActive:
    snapshots = tether.Barrier(INTERVAL, mode="sync")
    if name == "half":
        return tether.PartiallyActive(
            share=SHARES[name], snapshots=snapshots, meanwhile="skip", standby=1
        )
    return tether.PartiallyActive(share=SHARES[name], snapshots=snapshots)


class Case(NamedTuple):
    """One failure: of which contender, how many epochs after its snapshot."""

    name: str
    behind: int
    seed: int
    rows: int


@dataclass
class Seen:
    """What a sink was given, and when first."""

    first: dict[tuple[int, str], float] = field(default_factory=dict)
    stable: dict[int, Counter[tuple[int, int]]] = field(default_factory=dict)
    fidelity: list[float] = field(default_factory=list)

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Rows of an epoch, with their kinds."""
        columns = ("k", "count", "_change_type", "_stability", "_fidelity")
        got = rows.select(*columns).collect()
        put = ("insert", "update_postimage")
        tentative = [row for row in got if row["_stability"] == "tentative" and row[2] == "insert"]
        kind = "tentative" if tentative else "stable"
        self.first.setdefault((epoch, kind), time.monotonic())
        if tentative:
            self.fidelity.append(tentative[0]["_fidelity"])
            return
        self.stable[epoch] = Counter((row[0], row[1]) for row in got if row[2] in put)

    def take_back(self, epoch: int) -> None:
        """A rewind gives these again."""
        self.stable = {at: rows for at, rows in self.stable.items() if at < epoch}

    def after(self, moment: float) -> float | None:
        """When the first epoch that nobody had seen before was given, after a moment."""
        before = {epoch for (epoch, _), at in self.first.items() if at < moment}
        new = [at for (epoch, _), at in self.first.items() if at >= moment and epoch not in before]
        return min(new, default=None)


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    rows = 5_000
    waits, rounds, correlated = ((6,), 1, 1) if quick else ((5, 15), 3, 9)
    far, *near = reversed(waits)
    cases = [
        Case(name, far, seed + number, rows)
        for number in range(correlated)
        for name in ("half", "active", "passive")
        if name == "half" or number < rounds
    ]
    cases += [
        Case(name, behind, seed + number, rows)
        for behind in near
        for number in range(rounds)
        for name in ("active", "passive")
    ]
    stem = file_name("availability", quick=quick)
    identity = {"seed": seed, "cases": [case._asdict() for case in cases]}
    log = ResultLog(FOLDER / "availability" / f"{stem}.jsonl", identity, resume=resume)
    outcomes: list[dict[str, Any]] = []
    with scratch() as directory, _cluster() as session:
        for number, case in enumerate(cases, 1):
            found = log.get("failures", number)
            if found is None:
                got = _fail_once(session, directory / f"{number}", case)
                seconds = [1e3 * got["output"]]
                found = Measurement(seconds, not got["wrong"], {**case._asdict(), **got})
                log.add("failures", number, found)
                told = {name: round(value, 2) for name, value in got.items()}
                say(f"availability: failure {number} of {len(cases)}, {case.name}: {told}")
            outcomes.append(found.detail)
        cost = Experiment("availability", seed=seed, repeats=1 if quick else 3, log=log)
        write_epochs(directory / "in", epochs_of((8 if quick else 25) + WARM_UP, rows * 4, seed))
        one = partial(_measure, session, directory, rows * 4)
        plain = tether.Barrier(INTERVAL, mode="sync")
        half = tether.PartiallyActive(share=0.5, snapshots=plain)
        every = tether.PartiallyActive(share=1.0, snapshots=plain)
        cost.measure(
            {
                "no copies": partial(one, plain),
                "half copied": partial(one, half),
                "all copied": partial(one, every),
            }
        )
    report = cost.report(_goals(outcomes, waits[-1], cost), _workload(rows))
    report["failures"] = outcomes
    report["racks"] = racks(log, quick=quick, seed=seed)
    return report


def _goals(outcomes: list[dict[str, Any]], behind: int, cost: Experiment) -> list[Goal]:
    def median(name: str, what: str) -> float:
        some = [x[what] for x in outcomes if x["name"] == name and x["behind"] == behind]
        return statistics.median(some)

    to_passive = median("active", "output") / median("passive", "output")
    to_recovered = median("half", "tentative") / median("half", "recovered")
    return [
        Goal("availability.active_to_passive", "<=", 0.35, to_passive),
        Goal("availability.tentative_to_recovered", "<=", 0.25, to_recovered),
        Goal("availability.wrong_after", "<=", 0, sum(one["wrong"] for one in outcomes)),
        Goal("availability.cost_half", ">=", 0.6, cost.ratio("no copies", "half copied")),
        Goal("availability.kills", ">=", 30, sum(one["kills"] for one in outcomes)),
    ]


def _workload(rows: int) -> dict[str, Any]:
    return {"rows": rows, "keys": KEYS, "slots": SLOTS, "executors": EXECUTORS}


@contextmanager
def _cluster() -> Iterator[SparkSession]:
    conf = {
        "spark.executor.memory": "512m",
        "spark.locality.wait": "60s",
        "spark.scheduler.mode": "FAIR",
        # Executors are killed on purpose, many times: Spark must not give the application up.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.sql.shuffle.partitions": str(SLOTS),
    }
    session = open_session(f"local-cluster[{EXECUTORS},1,512]", app="availability", conf=conf)
    try:
        yield session
    finally:
        session.stop()


def _start(session: SparkSession, work: Path, policy: Any, sink: Any) -> Any:
    return (
        tether.stream(read_epochs(session, work / "in", SCHEMA))
        .apply(KeyedAggregate(), key="k", parallelism=SLOTS)
        .start(
            sink,
            tolerance=policy,
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_scope="executor",
            tentative=["k"] if sink is not None else False,
        )
    )


def _fail_once(session: SparkSession, work: Path, case: Case) -> dict[str, float]:
    """One query, one failure with some epochs since its snapshot; the input goes on meanwhile."""
    # The driver is one of those that are registered.
    _await("executors", lambda: len(live_executors(session.sparkContext)) == EXECUTORS + 1)
    tables, seen = epochs_of(300, case.rows, case.seed), Seen()
    write_epochs(work / "in", tables[: WARM_UP + 1])
    query = _start(session, work, _policy(case.name), seen)
    query.processAllAvailable()
    query.snapshot()
    given = WARM_UP + 1
    while "snapshot" not in _told(query, given - 3):
        given += write_epochs(work / "in", [tables[given]], first=given)
        query.processAllAvailable()
    given += write_epochs(work / "in", tables[given : given + case.behind - 2], first=given)
    query.processAllAvailable()
    usual = statistics.median(epoch_times(query.recentProgress, WARM_UP)) / 1e3
    feeder = Feeder(work / "in", tables, given, 2 * usual)
    feeder.start()
    _await("its pace", lambda: len(seen.stable) >= given + 2, query)
    _await("copies that can speak", lambda: all(seat["lag"] == 0 for seat in query.copies()), query)
    victims, since = _victims(query, case), query.lastProgress["batchId"]
    struck = time.monotonic()
    for victim in victims:
        kill(victim)
    _await("output", lambda: seen.after(struck) is not None, query)
    first = seen.after(struck)
    assert first is not None
    _await("recovery", lambda: not OVER[case.name].isdisjoint(_told(query, since)), query)
    recovered = time.monotonic() - struck
    feeder.stop()
    query.processAllAvailable()
    story = Counter(event.what for event in query.story())
    query.stop()
    found = {
        "output": first - struck,
        "wrong": float(_wrong(seen, tables[: feeder.given])),
        "kills": float(len(victims)),
        "usual_epoch": usual,
        "rewound": float(story["rewound"]),
        "promoted": float(story["promoted"]),
    }
    if case.name == "half":
        found |= {
            "tentative": first - struck,
            "recovered": recovered,
            "fidelity": min(seen.fidelity, default=1.0),
        }
    return found


class Feeder(threading.Thread):
    """Writes an epoch's file at a fixed interval of seconds."""

    def __init__(self, folder: Path, tables: list[pa.Table], first: int, every: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._tables, self.given = folder, tables, first
        self._every, self._ended = every, threading.Event()

    def run(self) -> None:
        """Until it is stopped, or all have been given."""
        while not self._ended.wait(self._every) and self.given < len(self._tables):
            write_epochs(self._folder, [self._tables[self.given]], first=self.given)
            self.given += 1

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()
        self.join()


def _told(query: Any, since: int = 0) -> set[str]:
    return {event.what for event in query.story() if event.epoch >= since}


def _victims(query: Any, case: Case) -> list[int]:
    """Executors to kill: one that speaks, or all that do, which leaves the one that stands by."""
    copied = {seat["slot"] for seat in query.copies()} if case.name == "passive" else set()
    # A slot that has a copy would go on at once.
    speaking = sorted({one["executor"] for one in query.slots() if one["slot"] not in copied})
    if case.name == "half":
        silent = {seat["executor"] for seat in query.copies() if not seat["speaks"]}
        assert not silent & set(speaking), "copies are not kept apart"
    else:
        speaking = [speaking[case.seed % len(speaking)]]
    return [int(name.split(":")[1]) for name in speaking]


def _wrong(seen: Seen, tables: list[pa.Table]) -> int:
    """Epochs whose stable rows are not those of a run without a failure."""
    counts: Counter[int] = Counter()
    wrong = 0
    for epoch, table in enumerate(tables):
        keys = Counter(table["k"].to_pylist())
        counts.update(keys)
        wrong += seen.stable.get(epoch) != Counter({(key, counts[key]): 1 for key in keys})
    return wrong


def _await(what: str, condition: Callable[[], bool], query: Any = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if query is not None and query.exception() is not None:
            raise RuntimeError(
                f"the query ended, and with it what was awaited: {what}; {where(query)}"
            )
        if time.monotonic() > deadline:
            told = "" if query is None else f"; {where(query)}"
            raise TimeoutError(f"no {what} in {SECONDS:.0f} s{told}")
        time.sleep(0.02)


def _measure(session: SparkSession, source: Path, rows: int, policy: Any) -> Measurement:
    with scratch() as directory:
        (directory / "in").symlink_to(source / "in")
        query = _start(session, directory, policy, None)
        query.processAllAvailable()
        total = query.table("totals").agg({"count": "sum"}).collect()[0][0]
        times = epoch_times([p for p in query.recentProgress if p["numInputRows"]], WARM_UP)
        query.stop()
    files = sum(1 for _ in (source / "in").glob("*.parquet"))
    return Measurement([statistics.fmean(times)], answer_checked=total == files * rows)
