"""The server as a real process: producers, curl, bad input, kills."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.gateway.serving import SCHEMA, ids, served, there

from tether.core.errors import BadValueError, TetherError
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.config import GatewayConfig
from tether.sources.gateway.errors import (
    BadRowsError,
    NotAllowedError,
    SupersededError,
    TooLargeError,
    UnreachableError,
)
from tether.sources.gateway.gateway import Gateway
from tether.testing.disks import small_disk
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tether.testing.gateways import GatewayProcess


def post(url: str, body: bytes, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        url, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    store = tmp_path_factory.mktemp("gateway") / "store"
    with gateway(store, "--stream", "s=id bigint", "--batch-bytes", "100000") as process:
        yield process


def test_rows_of_all_kinds_arrive_once_and_in_order(shared: GatewayProcess) -> None:
    with Producer(shared.flight, "kinds", "id bigint", batch_rows=3) as producer:
        producer.send({"id": 1})
        producer.send([{"id": 2}, {"id": 3}, {"id": 4}])
        producer.send(ids(5, 4))
        producer.send(pa.Table.from_batches([ids(9, 2), ids(11, 2)]))
        producer.heartbeat()
        producer.flush()
        assert (producer.acked, producer.unacked) == (12, 0)
        producer.boundary(3.5)
        producer.send({"id": 14})
    assert there(shared.flight, "kinds") == [*range(1, 13), 14]
    status = GatewayCalls(shared.flight).status("kinds")
    assert [(one.number, one.time) for one in status.boundaries] == [(13, 3.5)]
    assert status.gone == 0


def test_a_producer_started_again_goes_on_where_the_gateway_is(shared: GatewayProcess) -> None:
    with Producer(shared.flight, "again", SCHEMA, id="p") as producer:
        producer.send(ids(1, 10))
    with Producer(shared.flight, "again", SCHEMA, id="p", replays=True) as producer:
        assert producer.acked == 10
        producer.send(ids(11, 2))
    assert there(shared.flight, "again") == list(range(1, 13))


def test_curl_sends_rows_and_sees_what_became_of_them(shared: GatewayProcess) -> None:
    url = f"{shared.http}/streams/s"
    rows = '{"id": 1}\n{"id": 2}\n'
    done = subprocess.run(
        ["curl", "-s", "--data-binary", rows, url], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout) == {"ack_up_to_offset": 2, "rows": 2}
    named = {"Tether_Producer": "c", "Tether_Sequence": "1"}
    assert post(url, rows.encode(), **named)[1]["rows"] == 2
    assert post(url, rows.encode(), **named)[1] == {"ack_up_to_offset": 2, "duplicates": 2}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(ids(3, 2))
    arrow = sink.getvalue().to_pybytes()
    kind = "application/vnd.apache.arrow.stream"
    assert post(url, arrow, Content_Type=kind)[1]["rows"] == 2
    assert there(shared.flight) == [1, 2, 1, 2, 3, 4]
    status, ack = post(f"{url}/boundary?time=9.5", b"", Tether_Producer="c", Tether_Sequence="3")
    assert (status, ack["ack_up_to_offset"]) == (200, 3)
    with urllib.request.urlopen(f"{shared.http}/metrics") as page:
        assert 'tether_gateway_rows{stream="s"} 6' in page.read().decode()
    with urllib.request.urlopen(f"{shared.http}/health") as page:
        assert json.loads(page.read())["status"] == "ok"


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "error"),
    [
        ("s", b'{"id": "one"}', {}, 400, "bad-rows"),
        ("s", b'{"id": 1}\n{"id": ', {}, 400, "bad-rows"),
        ("s", b'{"id": 1, "other": 2}', {}, 400, "bad-rows"),
        (
            "s",
            b"\x00\x01\x02",
            {"Content_Type": "application/vnd.apache.arrow.stream"},
            400,
            "bad-rows",
        ),
        ("nobody", b'{"id": 1}', {}, 404, "unknown-stream"),
        ("s", b'{"id": 1}\n' * 20_000, {}, 413, "too-large"),
        ("s", b'{"id": 1}', {"Tether_Producer": "x"}, 400, "bad-rows"),
        (
            "s",
            b'{"id": 1}',
            {"Tether_Producer": "x", "Tether_Sequence": "7"},
            409,
            "wrong-sequence",
        ),
        (
            "s/boundary?time=soon",
            b"",
            {"Tether_Producer": "x", "Tether_Sequence": "1"},
            400,
            "bad-rows",
        ),
    ],
)
def test_bad_requests_get_a_clear_answer_and_leave_nothing(  # noqa: PLR0917
    shared: GatewayProcess,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    error: str,
) -> None:
    before = there(shared.flight)
    got, told = post(f"{shared.http}/streams/{path}", body, **headers)
    assert (got, told["error"]) == (status, error), told
    assert told["what"]
    assert told["do"]
    assert there(shared.flight) == before


def test_a_producer_that_does_not_fit_is_told(shared: GatewayProcess) -> None:
    with pytest.raises(BadRowsError, match="id: string in place of int64"):
        Producer(shared.flight, "s", "id string")
    with pytest.raises(BadValueError, match="other"):
        Producer(shared.flight, "s", SCHEMA).send({"other": 1})
    large = Producer(shared.flight, "s", SCHEMA, max_unacked=1e6)
    large.send(ids(1, 20_000))
    with pytest.raises(TooLargeError, match="limit is 100000 bytes"):
        large.flush()
    with pytest.raises(UnreachableError, match="does not answer"):
        Producer("127.0.0.1:9", "s", SCHEMA, retry_seconds=0.1)


def test_a_producer_that_lies_about_its_numbers_is_told(shared: GatewayProcess) -> None:
    client = flight.connect(shared.flight)
    command = json.dumps({"stream": "s", "producer": "liar"}).encode()
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), SCHEMA)
    assert json.loads(reader.read().to_pybytes())["heard"] == 0
    writer.write_with_metadata(ids(1, 1), b'{"offset_id": 100}')
    with pytest.raises(flight.FlightServerError, match="wrong-sequence"):
        writer.close()
    client.close()


def test_the_newer_of_two_connections_counts(shared: GatewayProcess) -> None:
    first = Producer(shared.flight, "twice", SCHEMA, id="p")
    first.send(ids(1, 1))
    first.flush()
    second = Producer(shared.flight, "twice", SCHEMA, id="p")
    second.send(ids(2, 1))
    second.flush()
    with pytest.raises(SupersededError):
        _send_all(first, ids(2, 1))
    second.close()
    assert there(shared.flight, "twice") == [1, 2]


def _send_all(producer: Producer, rows: pa.RecordBatch) -> None:
    producer.send(rows)
    producer.flush()


def test_a_producer_without_any_protocol_is_served(shared: GatewayProcess) -> None:
    client = flight.connect(shared.flight)
    writer, reader = client.do_put(flight.FlightDescriptor.for_path("plain"), SCHEMA)
    writer.write_batch(ids(1, 5))
    reader.read()
    assert json.loads(reader.read().to_pybytes())["ack_up_to_offset"] == 5
    writer.close()
    assert there(shared.flight, "plain") == [1, 2, 3, 4, 5]


def test_many_connections_harm_nobody_who_was_there_before(tmp_path: Path) -> None:
    options = {"streams": {"s": "id bigint"}, "idle_seconds": 600, "connections": 50}
    with served(tmp_path / "store", **options) as process, ExitStack() as lines:
        silent = [lines.enter_context(_line(process.http)) for _ in range(45)]
        for one in silent[:20]:
            one.sendall(HALF_A_REQUEST)
        assert post(f"{process.http}/streams/s", b'{"id": 1}')[0] == 200
        crowd = [lines.enter_context(_line(process.http)) for _ in range(30)]
        assert all(b"429" in one.recv(100) for one in crowd[-5:])
        with Producer(process.flight, "s", SCHEMA) as producer:
            producer.send(ids(2, 1))
        assert there(process.flight) == [1, 2]


def test_half_open_connections_are_ended(tmp_path: Path) -> None:
    options = {"streams": {"s": "id bigint"}, "idle_seconds": 0.2}
    with served(tmp_path / "store", **options) as process, ExitStack() as lines:
        silent = [lines.enter_context(_line(process.http)) for _ in range(6)]
        for one in silent[:3]:
            one.sendall(HALF_A_REQUEST)
        for one in silent:
            while one.recv(4096):
                pass
        assert there(process.flight) == []


HALF_A_REQUEST = b"POST /streams/s HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"


def _line(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)))
    line.settimeout(60)
    return line


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    with served(tmp_path / "store", token="secret") as process:
        for wrong in (None, "other"):
            with pytest.raises(NotAllowedError, match="token"):
                Producer(process.flight, "s", SCHEMA, token=wrong)
        with Producer(process.flight, "s", SCHEMA, token="secret") as producer:
            producer.send(ids(1, 1))
        with pytest.raises(NotAllowedError):
            GatewayCalls(process.flight).status("s")
        assert GatewayCalls(process.flight, "secret").status("s").received == 1
        assert post(f"{process.http}/streams/s", b'{"id": 1}')[0] == 401
        assert (
            post(f"{process.http}/streams/s", b'{"id": 2}', Authorization="Bearer secret")[0] == 200
        )


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out",
         str(certificate), "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    with served(tmp_path / "store", certificate=certificate, key=key) as process:
        assert process.flight.startswith("grpc+tls://")
        root = certificate.read_bytes()
        with Producer(process.flight, "s", SCHEMA, root_certificate=root) as producer:
            producer.send(ids(1, 1))
        with pytest.raises(TetherError):
            Producer(process.flight, "s", SCHEMA, retry_seconds=0.2, timeout_seconds=2)
        command = ["curl", "-s", "--cacert", str(certificate), f"{process.http}/health"]
        assert b"ok" in subprocess.run(command, capture_output=True, check=True).stdout


def test_two_gateways_on_one_store_are_refused(tmp_path: Path) -> None:
    config = GatewayConfig(store=tmp_path / "store")
    with served(tmp_path / "store"), pytest.raises(TetherError, match="Another gateway uses"):
        Gateway(config)


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 8 << 20) as disk,
        served(disk.path / "store", max_lost=0) as process,
    ):
        producer = Producer(process.flight, "s", SCHEMA, id="p", retry_seconds=120)
        producer.send(ids(1, 100))
        producer.flush()
        disk.fill()
        sending = threading.Thread(target=_send_all, args=(producer, ids(101, 5000)))
        sending.start()
        status, told = post(f"{process.http}/streams/s", b'{"id": 0}\n' * 5000)
        assert (status, told["error"]) == (503, "store-failed")
        assert GatewayCalls(process.flight).status("s").received == 100
        disk.free()
        sending.join(60)
        assert not sending.is_alive()
        assert there(process.flight) == list(range(1, 5101))
        producer.close()
