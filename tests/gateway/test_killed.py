"""Gateways and producers that are killed, or hang: what is lost is within l and γ."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.gateway.serving import SCHEMA, SEED, ids, there

from tether.core.errors import TetherError
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.messages import CommitNote
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from pathlib import Path


# ---- kills -------------------------------------------------------------------------------------------


@pytest.mark.chaos
def test_kills_of_gateways_lose_at_most_l_and_double_nothing(tmp_path: Path) -> None:
    """Producers send on while the gateway is killed at random moments; what is missing is told."""
    kills, most = 100 if os.environ.get("TETHER_LONG") else 4, 400
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    with gateway(tmp_path / "store", "--max-lost", str(2 * most)) as process:
        stop = threading.Event()

        def produce(name: int) -> int:
            number = 0
            with Producer(process.flight, "s", SCHEMA, id=str(name), max_unacked=500) as producer:
                while not stop.is_set():
                    producer.send(ids(name * 10**9 + number, 50))
                    number += 50
                producer.flush()
            return number

        told = []
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(produce, name) for name in range(3)]
            for _ in range(kills):
                calls = GatewayCalls(process.flight)
                aim = dice.randint(1, 3000)
                try:
                    start = calls.status("s").received
                except TetherError:
                    start = 0
                while _received(calls) < start + aim:
                    if any(one.done() for one in running):
                        break  # its error is raised below
                process.kill()
                process.start()
                told.append(process.told["lost"].get("s", 0))
            stop.set()
            sent = [one.result(timeout=120) for one in running]
        found = Counter(there(process.flight))
        wanted = {name * 10**9 + at for name, count in enumerate(sent) for at in range(count)}
        losses = GatewayCalls(process.flight).status("s").losses
        missing = wanted - set(found)
        assert max(found.values()) == 1
        assert set(found) <= wanted
        assert all(lost <= most for lost in told)
        assert len(missing) == sum(loss.at_most for loss in losses), "told exactly"
        assert len(missing) <= 2 * most
        print(f"{kills} kills, {len(missing)} of {len(wanted)} items lost, told {told}")


def _received(calls: GatewayCalls) -> int:
    try:
        return calls.status("s").received
    except TetherError:
        return 0


PRODUCER = """
import sys
import pyarrow as pa
from tether.producer import Producer
schema = pa.schema({"id": pa.int64()})
producer = Producer(sys.argv[1], "s", schema, id=sys.argv[2], max_unacked=float(sys.argv[3]))
number = 0
while True:
    producer.send(pa.record_batch([list(range(number, number + 7))], schema=schema))
    number += 7
    print(number, flush=True)
"""


@pytest.mark.chaos
def test_a_killed_producer_loses_at_most_gamma(tmp_path: Path) -> None:
    gamma = 40
    with gateway(tmp_path / "store", "--max-lost", "1000") as process:
        command = [sys.executable, "-c", PRODUCER, process.flight, "p", str(gamma)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        accepted = [int(child.stdout.readline()) for _ in range(200)]
        child.kill()
        accepted += [int(line) for line in child.stdout.read().split()]
        child.wait()
        calls = GatewayCalls(process.flight)
        while calls.status("s").producers:
            pass
        found = there(process.flight)
        assert found == list(range(len(found)))
        assert accepted[-1] - len(found) <= gamma
        assert calls.status("s").gone == gamma


@pytest.mark.chaos
@pytest.mark.long
def test_a_gateway_that_hangs_is_waited_for(tmp_path: Path) -> None:
    with gateway(tmp_path / "store") as process:
        with Producer(process.flight, "s", SCHEMA, timeout_seconds=1, max_unacked=100) as producer:
            producer.send(ids(1, 50))
            process.signal(signal.SIGSTOP)
            sending = threading.Thread(target=producer.send, args=(ids(51, 200),))
            sending.start()
            sending.join(2.5)  # past the timeout: the line was made again, and hangs too
            process.signal(signal.SIGCONT)
            sending.join(60)
            producer.flush()
        assert there(process.flight) == list(range(1, 251))
        calls = GatewayCalls(process.flight)
        calls.commit(CommitNote(stream="s", reader="q", upto=250))
        assert there(process.flight) == []
