"""Everything between a producer and an answer is killed or cut, while a real query runs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.gateway.relay import relay
from tests.gateway.serving import SEED

from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.testing.cluster import executors_of
from tether.testing.gateways import gateway
from tether.testing.processes import kill, kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.testing.gateways import GatewayProcess

pytestmark = [
    *(pytest.mark.spark, pytest.mark.cluster, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(600),
]
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})
PROGRAM = Path(__file__).with_name("job.py")
LONGEST_SECONDS = 300


class Job:
    """The query as a process; started again, it goes on from its checkpoint."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._settings, self._log = {"folder": str(folder), **settings}, folder / "log"
        folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def running(self) -> Iterator[Job]:
        self.start()
        try:
            yield self
        finally:
            self.kill()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(self._settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._line() == "started"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        kill_all(self._process.pid)
        self._process.wait(60)

    def answer(self) -> dict[str, Any]:
        """Let it read what is there, and end."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        watch = threading.Timer(LONGEST_SECONDS, self.kill)
        watch.start()
        line = self._process.stdout.readline().strip()
        watch.cancel()
        assert line, self._log.read_text(encoding="utf-8")[-4000:]
        return line


def rows(first: int, count: int) -> pa.RecordBatch:
    keys = [number % 7 for number in range(first, first + count)]
    return pa.record_batch([keys, [1] * count], schema=SCHEMA)


def await_committed(process: GatewayProcess, upto: int) -> None:
    calls = GatewayCalls(process.flight)
    waited = threading.Event()
    for _ in range(50 * LONGEST_SECONDS):
        if calls.look("s").committed >= upto:
            return
        waited.wait(0.02)
    raise AssertionError(f"the query does not come to {upto}: {calls.look('s')}")


@pytest.mark.parametrize(
    ("policy", "master"),
    [
        ("upstream-backup", "local-cluster[2,1,600]"),
        ("approximate", "local-cluster[2,1,600]"),
        ("mini-batch", "local[2,4]"),
        ("upstream-backup", "local[2,4]"),
    ],
)
def test_whatever_is_killed_or_cut_the_answer_is_as_promised(
    tmp_path: Path, policy: str, master: str
) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    strikes = ["driver", "gateway", "producer's line", "query's line", "gateway"]
    if master.startswith("local-cluster"):
        strikes += ["executor", "executor"]
    dice.shuffle(strikes)
    with (
        gateway(
            tmp_path / "store", "--max-lost", "100000", "--stream", "s=k bigint, v bigint"
        ) as it,
        relay(it.flight) as near,
        relay(it.flight) as far,
        Job(tmp_path / "job", policy=policy, master=master, gateway=far.address).running() as job,
        Producer(near.address, "s", SCHEMA, id="p", max_unacked=300, retry_seconds=120) as producer,
    ):
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                producer.send(rows(sent, 20))
                sent += 20

        send(10)
        await_committed(it, 1)
        for victim in strikes:
            send(dice.randint(3, 25))
            if victim == "driver":
                job.kill()
                job.start()
            elif victim == "gateway":
                it.kill()
                it.start()
            elif victim == "executor":
                kill(dice.choice(executors_of(job.pid)))
            else:
                (near if victim == "producer's line" else far).cut()
            send(dice.randint(1, 10))
            producer.flush()
            before = GatewayCalls(it.flight).look("s")
            await_committed(it, before.committed + 1 if before.committed < before.received else 0)
        producer.flush()
        found = job.answer()
        print(policy, master, strikes, found, sent)
        missing = sent - found["rows"]
        assert missing >= 0, "doubled"
        if policy == "approximate":
            assert missing <= found["state_error"]
            assert found["items_lost"] <= 400
        else:
            assert (missing, found["total"], found["items_lost"]) == (0, sent, 0)
