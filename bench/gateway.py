"""The gateway: rows in, epochs out, and kills (AF-Stream 2019 §3.4.2, §3.5)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tether
from bench.gateway_kafka import beside_kafka
from bench.gateway_runs import into_bare, into_gateway, killed_gateways, killed_producers
from bench.harness import Experiment, Goal, Measurement, say
from bench.results import FOLDER, ResultLog
from bench.streams import epoch_times, scratch
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.messages import CommitNote
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

AT_RISK = 100_000
"""l of the gateway in the first two comparisons."""
KEYS, WARM_UP = 130_000, 2
EVERY_ITEM = "every item logged, batches of 100"
MANY = 8
"""Producers that share the syncs of a gateway that logs every item."""
CHUNK = 10
"""Kills of one gateway, or on one; then comes the next."""
FROM_GATEWAY = "tether from the gateway"
FROM_FILES, FOLDED = "tether from Parquet, by Spark's file source", "tether from Parquet, folded"
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})


def run(*, quick: bool, seed: int, resume: bool = False) -> dict[str, Any]:
    """Rows in, epochs out, kills, Kafka beside it.

    Args:
        quick: Fewer of everything.
        seed: Of rows and kills.
        resume: Go on with a run that was interrupted: what has been measured is not measured again.
    """
    rows = 2_000_000 if quick else 10_000_000
    kills = 12 if quick else 100
    name = f"gateway{'-quick' if quick else ''}.jsonl"
    log = ResultLog(
        FOLDER / "gateway" / name, {"seed": seed, "rows": rows, "kills": kills}, resume=resume
    )
    experiment = Experiment("gateway", seed=seed, repeats=3 if quick else 5, log=log)
    with scratch() as folder:
        for batch in (1_000, 10_000):
            experiment.measure(
                {
                    f"bare Flight, batches of {batch}": partial(into_bare, rows, batch),
                    f"gateway, batches of {batch}": partial(
                        into_gateway, folder, rows, batch, AT_RISK
                    ),
                }
            )
        few = rows // 100
        experiment.measure(
            {
                "gateway, batches of 100": partial(into_gateway, folder, few, 100, AT_RISK),
                EVERY_ITEM: partial(into_gateway, folder, few, 100, 0),
                f"{EVERY_ITEM}, {MANY} producers": partial(into_gateway, folder, few, 100, 0, MANY),
            }
        )
        gateways = _killed(log, "gateways", kills, seed, partial(killed_gateways, folder, 500))
        producers = _killed(log, "producers", kills, seed, partial(killed_producers, folder, 40))
        _epochs(experiment, folder, epochs=WARM_UP + (4 if quick else 8), seed=seed)
        beside_kafka(experiment, folder, rows // 4)

    def speed(one: str, other: str) -> float:
        return experiment.median(other) / experiment.median(one)

    goals = [
        Goal(
            "gateway.speed_to_bare_flight",
            ">=",
            0.7,
            speed("gateway, batches of 1000", "bare Flight, batches of 1000"),
        ),
        Goal(
            "gateway.speed_to_every_item",
            ">=",
            3,
            speed("gateway, batches of 100", EVERY_ITEM),
        ),
        Goal(
            "gateway.epoch_to_files",
            "<=",
            0.8,
            experiment.median(FROM_GATEWAY) / experiment.median(FROM_FILES),
        ),
        Goal("gateway.lost_to_l", "<=", 1, gateways["lost_to_l"]),
        Goal("gateway.lost_to_gamma", "<=", 1, producers["lost_to_gamma"]),
        Goal("gateway.doubled", "<=", 0, gateways["doubled"] + producers["doubled"]),
    ]
    report = experiment.report(goals, {"rows": rows, "keys": KEYS})
    report["kills"] = {"gateways": gateways, "producers": producers}
    return report


def _killed(
    log: ResultLog,
    what: str,
    kills: int,
    seed: int,
    strike: Callable[[int, int], dict[str, Any]],
) -> dict[str, Any]:
    """Kill in chunks, each with a seed of its own; the worst of them, and all of what adds up."""
    told: list[dict[str, Any]] = []
    for number, first in enumerate(range(0, kills, CHUNK)):
        known = log.get(f"killed {what}", number)
        if known is None:
            many = min(CHUNK, kills - first)
            say(f"gateway: killing {what}, {first} of {kills} so far, seed {seed + number}")
            known = Measurement([], answer_checked=True, detail=strike(many, seed + number))
            log.add(f"killed {what}", number, known)
        told.append(known.detail)
    worst = {name: max(one[name] for one in told) for name in told[0] if name.startswith("lost_to")}
    return {name: sum(one[name] for one in told) for name in told[0]} | worst


def _epochs(experiment: Experiment, folder: Path, *, epochs: int, seed: int) -> None:
    """A keyed sum of a million rows an epoch, from the gateway and from files."""
    if experiment.recall(FROM_GATEWAY, FROM_FILES, FOLDED):
        return
    session = open_session("local[2,4]", memory="4g")
    random = np.random.default_rng(seed)
    rows, files = 1_000_000, folder / "files"
    files.mkdir()
    tables = []
    for number in range(epochs):
        data = {"k": random.integers(0, KEYS, rows), "v": random.integers(0, 100, rows)}
        tables.append(pa.table(data, schema=SCHEMA))
        pq.write_table(tables[-1], files / f"{number:04d}.parquet", row_group_size=250_000)
    total = sum(int(np.asarray(table["v"]).sum()) for table in tables)
    with gateway(folder / "epochs", "--max-lost", "200000") as process:
        with Producer(process.flight, "s", SCHEMA, max_unacked=1e6) as producer:
            for table in tables:
                for batch in table.to_batches(max_chunksize=10_000):
                    producer.send(batch)
        from_gateway = session.readStream.format("tether").option("gateway", process.flight)
        from_gateway = from_gateway.option("stream", "s").option("maxRowsPerEpoch", str(rows))
        from_files = session.readStream.schema("k bigint, v bigint")
        from_files = from_files.option("maxFilesPerTrigger", "1")
        # Somebody else who has read nothing yet: the rows stay for the next run.
        GatewayCalls(process.flight).commit(CommitNote(stream="s", reader="keeps the rows"))
        one = partial(_sums, folder, rows=rows, total=total)
        experiment.measure(
            {
                FROM_GATEWAY: lambda: one(from_gateway.load()),
                FROM_FILES: lambda: one(from_files.parquet(str(files)), fold=False),
                FOLDED: lambda: one(from_files.parquet(str(files))),
            }
        )
    session.stop()


def _sums(
    folder: Path, read: DataFrame, *, rows: int, total: int, fold: bool = True
) -> Measurement:
    run = folder / f"run-{time.monotonic_ns()}"
    query = (
        tether.stream(read)
        .apply(KeyedAggregate(sums={"total": "v"}), key="k", parallelism=2)
        .start(checkpoint=str(run / "checkpoint"), fold_at_source=fold)
    )
    query.processAllAvailable()
    found = query.table("totals").selectExpr("sum(total)").first()[0]
    times = epoch_times([one for one in query.recentProgress if one["numInputRows"]], WARM_UP)
    query.stop()
    return Measurement(times, found == total, {"epochs": len(times)}, rows=rows)
