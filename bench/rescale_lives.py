"""A query on Spark that gets other numbers of slots while its driver is killed, to its input's end."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

import tether
from bench.harness import Measurement
from tether.algorithms.aggregate import KeyedAggregate
from tether.chaos.faults import Fault, RescalePoint
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from tether.policies.policy import Policy

EPOCHS, ROWS, KEYS = 12, 400, 60
MOST_LIVES = 12
POLICIES: dict[str, Policy] = {
    "approximate": tether.Approximate(max_state_error=600),
    "mini-batch": tether.MiniBatch(),
    "upstream-backup": tether.UpstreamBackup(),
    "barrier": tether.Barrier(3),
}
POINTS = (*get_args(RescalePoint), "after-job", "before-spark-commit")


def lived(work: Path, seed: int) -> Measurement:
    """One history: moves and deaths of the driver drawn by chance; its last answer against the truth."""
    chance = random.Random(seed)
    # Each policy in turn, for ten histories are few.
    policy = list(POLICIES)[seed % len(POLICIES)]
    moves = {epoch: chance.randint(1, 4) for epoch in chance.sample(range(2, EPOCHS), 3)}
    deaths = [
        {"point": chance.choice(POINTS), "epoch": chance.choice([*moves]) - 1} for _ in range(2)
    ]
    keys = [[chance.randrange(KEYS) for _ in range(ROWS)] for _ in range(EPOCHS)]
    write_epochs(work / "in", [pa.table({"k": epoch, "v": [1] * ROWS}) for epoch in keys])
    plan = {"policy": policy, "moves": moves, "deaths": deaths}
    (work / "plan.json").write_text(json.dumps(plan))
    began, lives = time.monotonic(), 0
    while not (work / "answer.json").exists():
        lives += 1
        if lives > MOST_LIVES:
            raise AssertionError(f"{plan} is not through after {MOST_LIVES} lives")
        _live(work)
    told = json.loads((work / "answer.json").read_text())
    truth = Counter(key for epoch in keys for key in epoch)
    error = sum(abs(told["counts"].get(str(key), 0) - n) for key, n in truth.items())
    error += sum(n for key, n in told["counts"].items() if int(key) not in truth)
    detail: dict[str, Any] = {
        "wrong": int(error > told["spent"]),
        "error": error,
        "spent": told["spent"],
        "policy": policy,
        "lives": lives,
        "moves": len(told["moved"]),
        "slots": told["slots"],
        "deaths": [d["point"] for n, d in enumerate(deaths) if (work / f"death-{n}").exists()],
    }
    return Measurement([1000 * (time.monotonic() - began)], answer_checked=True, detail=detail)


def _live(work: Path) -> None:
    """One life of the driver, in a process of its own."""
    with (work / "log").open("ab") as log:
        command = [sys.executable, "-m", "bench.rescale_lives", str(work)]
        subprocess.run(command, stdout=log, stderr=log, check=False)


def _drive(work: Path) -> None:
    """In that process: go on with the stream, and move where the plan says so."""
    plan = json.loads((work / "plan.json").read_text())
    faults = [
        Fault(point=d["point"], action="kill", epoch=d["epoch"], marker=str(work / f"death-{n}"))
        for n, d in enumerate(plan["deaths"])
    ]
    session = open_session("local[2,4]")
    feed = work / "fed"
    feed.mkdir(exist_ok=True)
    query = (
        tether.stream(read_epochs(session, feed, "k long, v long"))
        .apply(KeyedAggregate(sums=["v"]), key="k", parallelism=2, name="sums")
        .start(
            None,
            tolerance=POLICIES[plan["policy"]],
            backup=str(work / "backup"),
            checkpoint=str(work / "checkpoint"),
            arena_dir=str(work / "arena"),
            arena_scope="executor",
            faults=faults,
        )
    )
    moved = work / "moved.json"
    for epoch, file in enumerate(sorted((work / "in").glob("*.parquet"))):
        slots = plan["moves"].get(str(epoch))
        done = json.loads(moved.read_text()) if moved.exists() else []
        if slots is not None and epoch not in done and query.slots():
            # It is tried once, also if a process dies in it.
            moved.write_text(json.dumps([*done, epoch]))
            query.rescale("sums", slots)
        if not (feed / file.name).exists():
            os.link(file, feed / file.name)
        query.processAllAvailable()
    rows = query.table("totals").collect()
    told = {
        "counts": {row["k"]: row["count"] for row in rows},
        "spent": query.bound().spent,
        "slots": len(query.slots()),
        "moved": json.loads(moved.read_text()) if moved.exists() else [],
    }
    if len({row["k"] for row in rows}) < len(rows):
        raise AssertionError("a key is in two slots")
    query.stop()
    (work / "answer.writing").write_text(json.dumps(told))
    (work / "answer.writing").rename(work / "answer.json")
    session.stop()


if __name__ == "__main__":
    _drive(Path(sys.argv[1]))
