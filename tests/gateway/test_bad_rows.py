"""Rows that cannot be read, ids and numbers that lie: refused, and the gateway goes on."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.gateway.serving import SCHEMA, ids, served, there
from tests.gateway.test_stream import crash, opened, rows

from tether.sources.gateway.errors import BadRowsError, GatewayError, WrongSequenceError
from tether.sources.gateway.messages import CommitNote
from tether.sources.gateway.rows import from_ipc, from_ndjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.schema({"user": pa.string(), "n": pa.int64()})


@pytest.mark.parametrize(
    "text",
    [
        b"null",  # Arrow's reader ends the process at this one
        b'{"user": "a"}\nnull',
        b'{"user": "a"} null',
        b"[1]",
        b"3",
        b'{"user": "\xff\xfe"}',
        b'{"user": "\\ud800"}',
        b'{"user": "a", "user": "b"}',
        b'{"user": "a", "n": 1.5}',
        b'{"user": "a", "n": 99999999999999999999}',
        b'{"user": "a", "else": 1}',
        b'{"user": "a",}',
        b'{"user": "a"',
        b'{"user": "a"}\n\x00',
    ],
)
def test_text_that_is_no_rows_is_refused(text: bytes) -> None:
    with pytest.raises(BadRowsError, match="cannot be read"):
        from_ndjson("s", ROWS, text)


def test_lines_may_be_empty_and_columns_may_be_missing() -> None:
    found = from_ndjson("s", ROWS, b'\n{"n": 1}\r\n \n{"user": "\\u00e9"}\n{}\n')
    assert found.to_pylist() == [
        {"user": None, "n": 1},
        {"user": "é", "n": None},
        {"user": None, "n": None},
    ]


def damaged() -> pa.RecordBatch:
    """Text whose offsets point far behind its bytes."""
    offsets = pa.array([0, 1_000_000_000, 5], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"hello")])
    return pa.record_batch([text], names=["text"])


def test_a_batch_that_is_not_what_it_says_is_refused(tmp_path: Path) -> None:
    batch = damaged()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(BadRowsError):
        from_ipc("s", batch.schema, sink.getvalue())
    with served(tmp_path / "store") as process, flight.connect(process.flight) as client:
        place = flight.FlightDescriptor.for_command(b'{"stream": "t", "producer": "p"}')
        writer, reader = client.do_put(place, batch.schema)
        reader.read()
        writer.write_with_metadata(batch, b'{"offset_id": 1}')
        with pytest.raises(flight.FlightServerError, match="bad-rows"):
            writer.close()
        place = flight.FlightDescriptor.for_command(b'{"stream": "s", "producer": "p"}')
        writer, reader = client.do_put(place, SCHEMA)
        reader.read()
        writer.write_with_metadata(ids(0, 3), b'{"offset_id": 1}')
        reader.read()
        writer.close()
        assert there(process.flight) == [0, 1, 2]


def test_an_id_that_is_too_long_is_refused_at_the_beginning(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process, flight.connect(process.flight) as client:
        hello = json.dumps({"stream": "s", "producer": "p" * 70_000}).encode()
        with pytest.raises(flight.FlightServerError, match="too long"):
            client.do_put(flight.FlightDescriptor.for_command(hello), SCHEMA)[1].read()


def asked(address: str, request: bytes) -> bytes:
    """The first bytes of the answer to a request written by hand."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(request)
        return line.recv(1000)


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/streams/s", "Transfer-Encoding: chunked\r\n", "-5\r\nxx", 400),
        ("/streams/s", "Content-Length: \xb2\r\n", "", 413),
        (
            "/streams/s",
            "Tether-Producer: p\r\nTether-Sequence: \xb2\r\nContent-Length: 0\r\n",
            "",
            400,
        ),
        (
            "/streams/s",
            f"Tether-Producer: p\r\nTether-Sequence: {10**17}\r\nContent-Length: 9\r\n",
            '{"id": 1}',
            409,
        ),
        ("/streams/s", f"Tether-Producer: {'p' * 2000}\r\nContent-Length: 0\r\n", "", 400),
        ("/streams/s/boundary?time=nan", "Content-Length: 0\r\n", "", 400),
        ("/streams/s/boundary?time=inf", "Content-Length: 0\r\n", "", 400),
        ("/streams/s/else?time=1", "Content-Length: 0\r\n", "", 404),
        ("/streams", "Content-Length: 0\r\n", "", 404),
        ("/streams/s", "Content-Length: 4\r\n", "null", 400),
    ],
)
def test_http_requests_that_lie_get_a_clear_answer(
    lying: str, path: str, headers: str, body: str, status: int
) -> None:
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}"
    answer = asked(lying, request.encode("latin-1"))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert asked(lying, b"GET /health HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("lying") / "store"
    with served(store, streams={"s": "id bigint"}) as process:
        yield process.http


def test_numbers_that_no_row_can_have_are_refused(tmp_path: Path) -> None:
    stream = opened(tmp_path, max_lost=40)
    stream.put("a", 1, rows("a", 1, 5))
    crash(stream, power=True)  # what was lost is not known: gaps are allowed, up to l
    again = opened(tmp_path, max_lost=40)
    for first in (-1, 0, 10**30):
        with pytest.raises(WrongSequenceError, match="is not one"):
            again.put("a", first, rows("a", 1, 1))
    assert again.put("a", 6, rows("a", 6, 1)).rows == 1
    with pytest.raises(GatewayError, match="cannot have processed item 1000"):
        again.commit(CommitNote(stream="s", reader="q", upto=1000))
    assert "q" not in again.status().readers
    crash(again)
