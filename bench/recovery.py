"""What a kill costs: seconds until a lost executor's slots are back, and how wrong answers become.

First an executor of a cluster on loopback is killed under a running query, ours and Spark's own with
RocksDB and changelog, with more and more keys. Then slots are killed by the hundred (``slot_kills``),
and every committed state is compared with the truth and with the bound.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.executor_kills import SLOTS, Outage, Target, open_cluster, outages
from bench.harness import Goal, environment, say
from bench.slot_kills import EPOCHS, KEYS, ROWS, Tally, kill_many
from bench.streams import scratch

_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
KILLS = 240
"""More than the 200 asked for, for the last life ends where it ends."""
SIZES = (10_000, 1_000_000, 10_000_000)
ASKED = 1_000_000
"""Keys a slot for which our own part is to take at most a second."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    sizes = SIZES[:2] if quick else SIZES
    rounds = 2 if quick else 4
    at_start = environment(seed, os.getloadavg()[0])
    measured: dict[tuple[str, int], list[Outage]] = {}
    with scratch() as directory:
        say(f"recovery: {KILLS} kills of slots")
        tally = _killed(seed)
        for contender, wait in (("tether", "60s"), ("spark: RocksDB, changelog", "300ms")):
            session = open_cluster(directory, locality_wait=wait)
            for keys in sizes:
                work = directory / f"{contender[:5]}-{keys}"
                target = Target(session, work, keys, seed, ours=contender == "tether")
                measured[contender, keys] = _measure(target, contender, keys, rounds)
            session.stop()
    own = statistics.median(outage.own for outage in measured["tether", ASKED])
    ratio = _median(measured["tether", ASKED]) / _median(
        measured["spark: RocksDB, changelog", ASKED]
    )
    goals = [
        Goal("recovery.own_seconds_1e6", "<=", 1, own),
        Goal("recovery.time_to_rocksdb", "<=", 1, ratio),
        Goal("recovery.kills", ">=", 200, tally.kills),
        Goal("recovery.bound_violations", "<=", 0, tally.violations),
        Goal("recovery.worst_error_to_bound", "<=", 1, max(tally.to_spent, default=0.0)),
    ]
    results = [_result(name, keys, found) for (name, keys), found in measured.items()]
    return {
        "experiment": "recovery",
        "environment": at_start,
        "results": [*results, _kills_result(tally)],
        "goals": [goal.plain() for goal in goals],
    }


def _killed(seed: int) -> Tally:
    """In memory: a kill takes a process, not the disk's cache, so the disk's pace shows nothing."""
    with tempfile.TemporaryDirectory(prefix="tether-bench-", dir=_FAST) as name:
        return kill_many(Path(name), kills=KILLS, seed=seed)


def _measure(target: Target, contender: str, keys: int, rounds: int) -> list[Outage]:
    target.start()
    try:
        target.load()
        found = list(outages(target, rounds))
        if contender == "tether":
            counted, sent = target.rows_counted()
            bound = target.query.bound()
            # Counts and sums of v = 1 drift alike, so the rows missing are half of the error.
            if 2 * (sent - counted) > bound.spent:
                raise AssertionError(f"{sent - counted} rows are missing, bound {bound.spent}")
    finally:
        target.query.stop()
    for outage in found:
        say(
            f"recovery: {contender}, {keys:,} keys a slot: {outage.committed:.2f} s "
            f"(detected {outage.detected:.2f}, replaced {outage.replaced:.2f}, own {outage.own:.3f}, "
            f"usual epoch {outage.usual_epoch:.2f})"
        )
    return found


def _median(found: list[Outage]) -> float:
    return statistics.median(outage.committed for outage in found)


def _result(name: str, keys: int, found: list[Outage]) -> dict[str, Any]:
    times = [1000 * outage.committed for outage in found]

    def median(values: list[float]) -> float | None:
        seen = [value for value in values if not math.isnan(value)]  # not seen: not waited for
        return round(statistics.median(seen), 4) if seen else None

    phases = {phase for outage in found for phase in outage.restore}
    return {
        "contender": f"{name}, {keys:,} keys a slot",
        "workload": {"keys_per_slot": keys, "slots": SLOTS, "fault": "SIGKILL of an executor"},
        "repeats": len(found),
        "median_ms": round(statistics.median(times), 2),
        "spread_ms": [round(min(times), 2), round(max(times), 2)],
        "answer_checked": name == "tether",
        "detail": {
            "seconds": {
                "detected": median([outage.detected for outage in found]),
                "replaced": median([outage.replaced for outage in found]),
                "committed": median([outage.committed for outage in found]),
                "usual_epoch": median([outage.usual_epoch for outage in found]),
            },
            "own_seconds": {
                phase: median([outage.restore.get(phase, 0.0) for outage in found])
                for phase in sorted(phases)
            },
        },
    }


def _kills_result(tally: Tally) -> dict[str, Any]:
    times = [1000 * seconds for seconds in tally.recovery_seconds]
    return {
        "contender": "tether: slots killed at random moments",
        "workload": {"rows": ROWS, "keys": KEYS, "epochs": EPOCHS, "fault": "SIGKILL of a slot"},
        "repeats": tally.kills,
        "median_ms": round(statistics.median(times), 2),
        "spread_ms": [round(min(times), 2), round(max(times), 2)],
        "answer_checked": True,
        "detail": {
            "kills": tally.kills,
            "before_the_slot_had_reported": tally.mid_epoch,
            "losses": tally.losses,
            "recoveries_that_lost_nothing": tally.exact_recoveries,
            "epochs_compared": tally.compared,
            "bound_violations": tally.violations,
            "rows_lost_in_all_lives": tally.items_lost,
            "worst_error_to_bound_told": round(max(tally.to_spent, default=0.0), 4),
            "worst_error_to_budget": round(max(tally.to_promised), 4),
        },
    }
