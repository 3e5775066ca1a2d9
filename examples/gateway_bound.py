"""The whole bound at once: producers, a gateway and executors are killed, and nothing is wrong by more.

AF-Stream promises (2019 §3.5): after any number of failures the state is off by at most Θ + L·α, and at
most Γ + L·β outputs are missing. Here an item adds 1 to one count, so α = 1, and leads to one output,
so β = 1. Three processes that hold something are killed with SIGKILL, round after round:

- a producer: it may take up to γ unacknowledged items with it;
- the gateway: it may take up to l acknowledged items with it;
- an executor of the query: it may take up to θ of its slot's state with it.

Run it with ``python examples/gateway_bound.py``: about a minute, on this machine only.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tether
from tether.cli.session import open_session
from tether.producer import Producer
from tether.testing.cluster import standalone_cluster
from tether.testing.gateways import GatewayProcess, gateway

THETA, L, GAMMA = 600, 400, 120
KEYS = 7
SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64()})
MILLION = 1_000_000


class Counts(tether.Operator):
    """Counts items of each key, and passes every item on."""

    output = "id bigint"

    def setup(self, state: Any) -> None:
        """One table, by key."""
        self.counts = state.table("counts", {"k": pa.int64()}, {"n": "float64"}, divergence="l1")

    def process(self, batch: pa.RecordBatch, out: tether.Output) -> None:
        """Count, and pass on."""
        self.counts.add(batch.select(["k"]), n=np.ones(batch.num_rows))
        out.emit({"id": batch["id"].to_numpy()})


def produce(address: str, name: int) -> None:
    """A producer that nobody can ask again: prints how many items it has taken over."""
    producer = Producer(address, "items", SCHEMA, id=str(name), retry_seconds=120)
    number = 0
    while True:
        producer.send(items(name, number, 5))
        number += 5
        print(number, flush=True)


def items(name: int, first: int, count: int) -> pa.RecordBatch:
    """Items of a producer, numbered."""
    ids = [name * MILLION + number for number in range(first, first + count)]
    return pa.record_batch([ids, [one % KEYS for one in ids]], schema=SCHEMA)


def killed_while_sending(it: GatewayProcess, name: int, dice: random.Random) -> int:
    """Let a producer send, kill the gateway meanwhile, then it; gives what it had taken over."""
    command = [sys.executable, __file__, "--produce", it.flight, str(name)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert child.stdout is not None
    taken = [0]

    def read() -> None:
        for line in child.stdout or ():
            taken.append(int(line))
            came.set()

    came = threading.Event()
    listening = threading.Thread(target=read)
    listening.start()

    def await_lines(count: int) -> None:
        while len(taken) < count:
            came.wait(60)
            came.clear()

    await_lines(dice.randint(20, 60))
    it.kill()
    it.start()
    await_lines(len(taken) + dice.randint(5, 20))
    child.kill()
    child.wait()
    listening.join()
    return taken[-1]


def main(rounds: int, seed: int) -> dict[str, object]:
    """Kill, count what is missing, and compare with what the query says."""
    dice, work = random.Random(seed), Path(tempfile.mkdtemp(prefix="tether-gateway-bound-"))  # noqa: S311
    passed: set[int] = set()
    with (
        gateway(
            work / "store", "--max-lost", "100000", "--stream", "items=id bigint, k bigint"
        ) as it,
        standalone_cluster(work / "cluster", workers=2, memory="800m") as cluster,
    ):
        settings = {
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            # Both executors are there before the first epoch: each gets a slot.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        }
        spark = open_session(cluster.url, app="gateway bound", memory="1g", conf=settings)
        read = spark.readStream.format("tether").option("gateway", it.flight)
        query = (
            tether.stream(read.option("stream", "items").load())
            .apply(Counts(), key="k", parallelism=2)
            .start(
                lambda rows, _: passed.update(row.id for row in rows.collect()),
                tolerance=tether.Approximate(THETA, L, GAMMA),
                backup=str(work / "backup"),
                checkpoint=str(work / "checkpoint"),
                arena_scope="executor",  # as on machines of their own: state dies with its executor
            )
        )
        taken: dict[int, int] = {}
        for name in range(rounds):
            taken[name] = killed_while_sending(it, name, dice)
            query.processAllAvailable()
            cluster.kill_executor(dice.randrange(2))
        with Producer(it.flight, "items", SCHEMA, id=str(rounds)) as last:
            last.send(items(rounds, 0, 200))
            taken[rounds] = 200
        query.processAllAvailable()
        found = {row.k: row.n for row in query.table("counts").collect()}
        bound, losses = query.bound(), len([e for e in query.story() if e.what == "recovery"])
        query.stop()
        spark.stop()
    wanted = {name * MILLION + at for name, count in taken.items() for at in range(count)}
    wanted |= passed  # a producer may have sent more than it lived to say
    truth = Counter(one % KEYS for one in wanted)
    return {
        "seed": seed,
        "items": len(wanted),
        "gateways_killed": rounds,
        "producers_killed": rounds,
        "slots_lost": losses,
        "items_lost": bound.items_lost,
        "items_unacked": bound.items_unacked,
        "state_wrong_by": sum(abs(truth[k] - found.get(k, 0)) for k in range(KEYS)),
        "state_bound_now": bound.state_error(alpha=1),
        "state_promise": THETA + (L + GAMMA) * 1,
        "outputs_missing": len(wanted - passed),
        "outputs_bound_now": bound.lost_outputs(beta=1),
        "outputs_promise": GAMMA + L * 1,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--produce", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=20)
    given = parser.parse_args()
    if given.produce:
        produce(given.produce[0], int(given.produce[1]))
    print(json.dumps(main(given.rounds, given.seed), indent=1))
