"""Growth: an epoch that touches 100,000 keys, with 100,000 and with 10 million resident keys.

Of operators, and of a plain SQL query on the bounded state store; of that with 50 million, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from bench.growth_sql import sql_door
from bench.harness import Experiment, Goal, Measurement
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SLOTS = 2
TOUCHED = 100_000
LOAD = 1_000_000
SCHEMA = "k long"
KEY_BYTES = 8
LARGEST = 50_000_000
"""Keys of the largest state of a SQL query."""
HEAP = "8g"
"""What that needs: its rows, and room for Java to work."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    session = open_session(f"local[{SLOTS},4]", memory="4g" if quick else HEAP)
    small, large = 100_000, 1_000_000 if quick else 10_000_000
    epochs = 8 if quick else 15
    experiment = Experiment("growth", seed=seed, repeats=1 if quick else 3)
    experiment.measure(
        {
            f"{small:,} resident keys": partial(_stream, session, small, epochs, seed),
            f"{large:,} resident keys": partial(_stream, session, large, epochs, seed),
        }
    )
    sizes = (small, large) if quick else (small, large, LARGEST)
    for size in sizes:
        experiment.measure(
            {f"SQL door, {size:,} keys": partial(_sql, session, size, epochs, seed)},
            warm_up=size == small,
            repeats=1,
        )
    few, many = f"{small:,} resident keys", f"{large:,} resident keys"
    per_key = max(run.detail["bytes_per_key"] for run in experiment.runs[many])
    goals = [
        Goal("growth.epoch_time", "<=", 1.5, experiment.ratio(many, few)),
        Goal("growth.bytes_per_key", "<=", 64, per_key),
        Goal(
            "growth.sql_epoch_time",
            "<=",
            1.5,
            experiment.ratio(f"SQL door, {large:,} keys", f"SQL door, {small:,} keys"),
        ),
    ]
    return experiment.report(goals, {"touched": TOUCHED, "slots": SLOTS, "epochs": epochs})


def _epochs(keys: int, epochs: int, seed: int) -> Iterator[pa.Table]:
    """First all keys, scattered over the 64-bit range; then epochs that touch some of them."""
    random = np.random.default_rng(seed)
    names = random.permutation(keys).astype(np.int64) * np.int64(6364136223846793005)
    for start in range(0, keys, LOAD):
        yield pa.table({"k": names[start : start + LOAD]})
    for _ in range(epochs):
        yield pa.table({"k": random.choice(names, TOUCHED, replace=False)})


def _sql(session: SparkSession, keys: int, epochs: int, seed: int) -> Measurement:
    return sql_door(
        session,
        _epochs(keys, epochs, seed),
        4.0 * epochs * TOUCHED,
        slots=SLOTS,
        loading=-(-keys // LOAD),
        keys=keys,
        rows=keys + epochs * TOUCHED,
    )


def _stream(session: SparkSession, keys: int, epochs: int, seed: int) -> Measurement:
    loading = -(-keys // LOAD)
    with scratch() as directory:
        total = write_epochs(directory / "in", _epochs(keys, epochs, seed))
        query = (
            tether.stream(read_epochs(session, directory / "in", SCHEMA))
            .apply(KeyedAggregate(), key="k", parallelism=SLOTS)
            .start(
                # Loading is a backup's worth of drift, and the measured epochs stay below the next.
                tolerance=tether.Approximate(max_state_error=4.0 * epochs * TOUCHED),
                backup=str(directory / "backup"),
                checkpoint=str(directory / "checkpoint"),
            )
        )
        query.processAllAvailable()
        resident = sum(slot["resident_bytes"] for slot in query.slots())
        answer = query.table("totals").selectExpr("count(*)", "sum(`count`)").collect()[0]
        progress = [report for report in query.recentProgress if report["numInputRows"]]
        query.stop()
    right = tuple(answer) == (keys, keys + epochs * TOUCHED) and len(progress) == total
    detail = {
        "bytes_per_key": resident / keys - KEY_BYTES,
        "backups": query.totals()["backups"],
        "slot_seconds": query.slots()[0]["seconds"],
    }
    return Measurement(epoch_times(progress, loading + 2), right, detail)
