"""Runs of the experiment ``gateway``: rows into servers, epochs out of them, kills."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from bench.harness import Measurement
from tether.core.errors import TetherError
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.testing.gateways import GatewayProcess, gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BARE = """
import pyarrow.flight as flight
class Bare(flight.FlightServerBase):
    def do_put(self, context, descriptor, reader, writer):
        rows = 0
        writer.write(b"{}")
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            rows += chunk.data.num_rows
            writer.write(b'{"ack_up_to_offset": %d}' % rows)
server = Bare("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""
IDS = pa.schema({"id": pa.int64()})


@contextlib.contextmanager
def bare_flight() -> Iterator[str]:
    """A Flight server that acknowledges rows and throws them away, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", BARE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield f"grpc://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def into_bare(rows: int, batch: int) -> Measurement:
    """Rows into a server that throws them away."""
    with bare_flight() as address:
        return Measurement([_push(address, rows, batch)], True, rows=rows)


def into_gateway(
    folder: Path, rows: int, batch: int, at_risk: int, producers: int = 1
) -> Measurement:
    """The same rows, by the same client, into a gateway that may have ``at_risk`` items at risk.

    Args:
        folder: For its store.
        rows: In all.
        batch: Rows of a batch.
        at_risk: l.
        producers: Clients that share the rows.
    """
    store = folder / f"store-{time.monotonic_ns()}"
    with gateway(store, "--max-lost", str(2 * at_risk), "--connections", "10") as process:
        with ThreadPoolExecutor(producers) as pool:
            send = partial(_push, process.flight, rows // producers, batch)
            took = max(pool.map(send, map(str, range(producers))))
        status = GatewayCalls(process.flight).status("s")
        checked = status.received == rows and status.at_risk <= at_risk
    shutil.rmtree(store)
    return Measurement([took], checked, {"durable": status.backed_up}, rows=rows)


def _push(address: str, rows: int, batch: int, producer: str = "p") -> float:
    """Milliseconds until every row is acknowledged, over one plain ``DoPut``."""
    data = pa.record_batch({"k": np.arange(batch), "v": np.random.default_rng(1).random(batch)})
    client = flight.connect(address)
    hello = json.dumps({"stream": "s", "producer": producer}).encode()
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(hello), data.schema)
    reader.read()
    done = threading.Event()

    def listen() -> None:
        while (answer := reader.read()) is not None:
            if json.loads(answer.to_pybytes())["ack_up_to_offset"] >= rows:
                done.set()
                return

    threading.Thread(target=listen, daemon=True).start()
    begin = time.perf_counter()
    for first in range(1, rows + 1, batch):
        writer.write_with_metadata(data, b'{"offset_id": %d}' % first)
    done.wait()
    took = 1000 * (time.perf_counter() - begin)
    writer.done_writing()
    client.close()
    return took


def killed_gateways(folder: Path, at_risk: int, kills: int, seed: int) -> dict[str, Any]:
    """Kill a gateway at random moments while producers send on; count what is missing and doubled."""
    dice = random.Random(seed)
    with gateway(folder / f"killed-{seed}", "--max-lost", str(2 * at_risk)) as process:
        stop, limits, told = threading.Event(), [], []
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(_produce, process, str(name), stop) for name in range(2)]
            for _ in range(kills):
                limits.append(_await_rows(process, dice.randint(1, 2000)))
                process.kill()
                process.start()
                told.append(process.told["lost"].get("s", 0))
            stop.set()
            sent = [one.result() for one in running]
        calls = GatewayCalls(process.flight)
        status = calls.status("s")
        found = Counter(calls.read("s", 1, status.shown)["id"].to_pylist())
    wanted = sum(sent)
    missing = wanted - len(found)
    return {
        "kills": kills,
        "sent": wanted,
        "missing": missing,
        "told": sum(loss.at_most for loss in status.losses),
        "doubled": sum(found.values()) - len(found),
        "lost_to_l": max(
            (lost / most if most else float(lost) for lost, most in zip(told, limits, strict=True)),
            default=0.0,
        ),
        "lost_to_all": missing / (2 * at_risk),
    }


def _produce(process: GatewayProcess, name: str, stop: threading.Event) -> int:
    number = 0
    with Producer(
        process.flight, "s", IDS, id=name, max_unacked=500, retry_seconds=120
    ) as producer:
        while not stop.is_set():
            first = int(name) * 10**9 + number
            producer.send(pa.record_batch([np.arange(first, first + 20)], schema=IDS))
            number += 20
        producer.flush()
    return number


def _await_rows(process: GatewayProcess, more: int) -> float:
    """Wait until ``more`` further rows have come; gives l."""
    calls, start = GatewayCalls(process.flight), None
    while True:
        try:
            status = calls.look("s")
        except TetherError:
            continue
        start = status.received if start is None else start
        if status.received >= start + more:
            return status.limit


PRODUCER = """
import sys
import pyarrow as pa
from tether.producer import Producer
schema = pa.schema({"id": pa.int64()})
producer = Producer(sys.argv[1], "s", schema, id=sys.argv[2], max_unacked=float(sys.argv[3]))
number, base = 0, int(sys.argv[2]) * 10**9
while True:
    producer.send(pa.record_batch([list(range(base + number, base + number + 7))], schema=schema))
    number += 7
    print(number, flush=True)
"""


def killed_producers(folder: Path, gamma: int, kills: int, seed: int) -> dict[str, Any]:
    """Kill producers at random moments; count what they had taken over and nobody has."""
    dice, worst = random.Random(seed), 0.0
    with gateway(folder / f"producers-{seed}", "--max-lost", "100000") as process:
        lines = [dice.randint(1, 60) for _ in range(kills)]

        def kill_one(number: int) -> int:
            command = [sys.executable, "-c", PRODUCER, process.flight, str(number), str(gamma)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            for _ in range(lines[number]):
                child.stdout.readline()
            child.kill()
            # What it had printed is what it had taken over, but for one batch at most.
            printed = child.stdout.read().split()
            child.wait()
            return int(printed[-1]) if printed else 0

        with ThreadPoolExecutor(3) as pool:
            accepted = list(pool.map(kill_one, range(kills)))
        calls = GatewayCalls(process.flight)
        while calls.look("s").producers:
            time.sleep(0.01)
        status = calls.status("s")
        found = Counter(calls.read("s", 1, status.shown)["id"].to_pylist())
        for number, count in enumerate(accepted):
            there = sum(number * 10**9 + at in found for at in range(count))
            worst = max(worst, (count - there) / gamma)
        doubled = sum(found.values()) - len(found)
    return {"kills": kills, "lost_to_gamma": worst, "doubled": doubled, "told": status.gone}
