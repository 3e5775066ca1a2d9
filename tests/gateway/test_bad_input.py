"""Who behaves badly gets a clear answer, and everybody else is served meanwhile."""

from __future__ import annotations

import json
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight
from tests.gateway.serving import SCHEMA, ids, served, there

from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.errors import BadRowsError, BusyError, NotAllowedError, TooLargeError
from tether.sources.gateway.messages import ReadTicket
from tether.testing.disks import small_disk
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def put(client: flight.FlightClient, producer: str, stream: str = "s") -> tuple[object, object]:
    """A ``DoPut`` that has been welcomed."""
    command = json.dumps({"stream": stream, "producer": producer}).encode()
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), SCHEMA)
    reader.read()
    return writer, reader


def test_a_thousand_connections_half_of_them_half_open(tmp_path: Path) -> None:
    """They say nothing, or half of a word; producers that come after them are served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    with gateway(tmp_path / "store", "--stream", "s=id bigint") as process, ExitStack() as open_:
        host, port = process.flight.removeprefix("grpc://").split(":")
        for number in range(1000):
            line = open_.enter_context(closing(socket.create_connection((host, int(port)))))
            if number % 2:
                line.sendall(PREFACE[: number % len(PREFACE)])

        def send(name: int) -> None:
            with Producer(process.flight, "s", SCHEMA, id=str(name)) as producer:
                producer.send(ids(100 * name, 100))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(send, range(24)))
        assert sorted(there(process.flight)) == list(range(2400))
        assert process.running


@pytest.mark.long
def test_a_thousand_producers_at_once(tmp_path: Path) -> None:
    """All of them connected, all of them served: one call each over a few channels."""
    with gateway(tmp_path / "store", "--stream", "s=id bigint") as process, ExitStack() as open_:
        clients = [open_.enter_context(flight.connect(process.flight)) for _ in range(20)]
        lines = [put(clients[number % 20], str(number)) for number in range(1000)]
        assert GatewayCalls(process.flight).look("s").producers == 1000
        for number, (writer, _) in enumerate(lines):
            writer.write_with_metadata(ids(10 * number, 10), b'{"offset_id": 1}')
        for writer, reader in lines:
            assert json.loads(reader.read().to_pybytes())["ack_up_to_offset"] == 10
            writer.close()
        assert sorted(there(process.flight)) == list(range(10_000))


def test_more_producers_than_it_takes_are_told_and_may_come_later(tmp_path: Path) -> None:
    with served(tmp_path / "store", connections=3) as process:
        first = [Producer(process.flight, "s", SCHEMA, id=str(name)) for name in range(3)]
        with pytest.raises(BusyError, match="as many connections as it takes"):
            Producer(process.flight, "s", SCHEMA, id="3", retry_seconds=0.1)
        for at, one in enumerate(first):
            one.send(ids(at, 1))
            one.close()
        with Producer(process.flight, "s", SCHEMA, id="3") as late:
            late.send(ids(3, 1))
        assert there(process.flight) == [0, 1, 2, 3]


@pytest.mark.parametrize("memory", [1, 512 << 20], ids=["on disk", "in memory"])
def test_a_slow_reader_keeps_nobody_waiting(tmp_path: Path, memory: int) -> None:
    """It reads the first rows and then nothing, until others have sent and read far more."""
    count = 3_000_000  # 24 MB: far above what fits into the network's own buffers
    with served(tmp_path / "store", memory_bytes=memory, max_lost=0) as process:
        producer = Producer(process.flight, "s", SCHEMA, max_unacked=1e9)
        for first in range(0, count, 100_000):
            part = np.arange(first, first + 100_000)
            producer.send(pa.record_batch([part], schema=SCHEMA))
        producer.flush()
        with flight.connect(process.flight) as client:
            ticket = ReadTicket(stream="s", first=1, last=count)
            slow = client.do_get(flight.Ticket(msgspec.json.encode(ticket)))
            seen = slow.read_chunk().data.num_rows
            producer.send(ids(count, 1000))
            producer.flush()
            assert GatewayCalls(process.flight).read("s", count + 1, count + 1000).num_rows == 1000
            rest = slow.read_all()
        assert seen + rest.num_rows == count
        producer.close()


def test_bad_producers_harm_only_themselves(tmp_path: Path) -> None:
    """A liar, a wrong schema, too large a batch, a wrong token: while a good one sends."""
    with served(tmp_path / "store", token="t", batch_bytes=100_000) as process:
        stop, sent = threading.Event(), []

        def good() -> int:
            number = 0
            with Producer(process.flight, "s", SCHEMA, id="good", token="t") as producer:
                while not stop.is_set() or number < 1000:
                    producer.send(ids(number, 50))
                    number += 50
                    sent.append(number)
            return number

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(good)
            while not sent:
                pass
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer t")])
            for text, wrong in (
                (b'{"offset_id": 9}', "wrong-sequence"),
                (b'{"offset_id": 0}', "wrong-sequence"),
                (b"nonsense", "bad-rows"),
                (b'{"offset_id": "x"}', "bad-rows"),
                (b'{"offset_id": 1, "boundary": "x"}', "bad-rows"),
            ):
                with flight.connect(process.flight) as client:
                    command = json.dumps({"stream": "s", "producer": f"bad-{text!r}"}).encode()
                    place = flight.FlightDescriptor.for_command(command)
                    writer, reader = client.do_put(place, SCHEMA, options)
                    reader.read()
                    writer.write_with_metadata(ids(-1, 1), text)
                    with pytest.raises(flight.FlightServerError, match=wrong):
                        writer.close()
            with pytest.raises(BadRowsError, match="id: double in place of int64"):
                Producer(process.flight, "s", "id double", token="t")
            with pytest.raises(NotAllowedError):
                Producer(process.flight, "s", SCHEMA, token="T")
            large = Producer(process.flight, "s", SCHEMA, max_unacked=1e6, token="t")
            large.send(pa.record_batch([[-2] * 20_000], schema=SCHEMA))
            with pytest.raises(TooLargeError):
                large.flush()
            stop.set()
            count = running.result(timeout=60)
        calls = GatewayCalls(process.flight, "t")
        newest = calls.status("s").shown
        assert calls.read("s", 1, newest)["id"].to_pylist() == list(range(count))


def test_a_full_disk_takes_l_items_and_no_more(tmp_path: Path) -> None:
    """Early saves fail meanwhile, and nobody notices before l; with room again all of it is durable."""
    with (
        small_disk(tmp_path / "disk", 8 << 20) as disk,
        served(disk.path / "store", max_lost=1000, streams={"s": "id bigint"}) as process,
    ):
        calls = GatewayCalls(process.flight)
        producer = Producer(process.flight, "s", SCHEMA, max_unacked=1e6, retry_seconds=120)
        disk.fill()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(_send, producer, 3000)
            while not producer.reconnects:  # it was refused, and tries again
                pass
            now = calls.look("s")
            disk.free()
            running.result(60)
        assert now.at_risk <= 500 <= now.received < 3000
        assert there(process.flight) == list(range(3000))
        assert calls.look("s").at_risk <= 500
        producer.close()


def _send(producer: Producer, count: int) -> None:
    for first in range(0, count, 50):
        producer.send(ids(first, 50))
    producer.flush()
