"""The gateway over plain HTTP: NDJSON and Arrow IPC by ``POST``, health and metrics by ``GET``.

For whatever can run ``curl``. The status of an answer says all: 200 received, 400 rows that cannot be
read, 401 no token, 404 no such stream, 409 wrong sequence, 413 too large, 429 no room now, 503 the disk
is full. Rows are taken all or none.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from tether.core.errors import TetherError
from tether.sources.gateway.errors import (
    BadRowsError,
    GatewayError,
    NotAllowedError,
    TooLargeError,
    UnknownStreamError,
)
from tether.sources.gateway.gateway import check_id
from tether.sources.gateway.metrics import metrics_page
from tether.sources.gateway.rows import from_ipc, from_ndjson
from tether.sources.gateway.stream import ANONYMOUS

if TYPE_CHECKING:
    import socket
    import ssl

    from tether.sources.gateway.gateway import Gateway

ARROW = "application/vnd.apache.arrow.stream"


class HttpFront(ThreadingHTTPServer):
    """Serves a gateway over HTTP.

    Args:
        gateway: The streams.
        address: Host and port.
        tls: For HTTPS.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self, gateway: Gateway, address: tuple[str, int], tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(address, _Handler)
        self.gateway = gateway
        self._tls = tls
        self._room = threading.Semaphore(gateway.config.connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, as long as there are not too many."""
        if not self._room.acquire(blocking=False):
            # Written directly: there are too many connections for a thread that would answer.
            _refuse(request)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve it; silent and broken connections end here, and harm nobody else."""
        try:
            # Set before the TLS handshake: a client that stops within it must not stay connected.
            request.settimeout(self.gateway.config.idle_seconds)
            if self._tls is not None:
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except (OSError, ValueError):
            self.shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


def _refuse(request: socket.socket) -> None:
    body = b'{"error": "busy", "what": "The gateway has as many connections as it takes."}'
    head = (
        f"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request.settimeout(1)
    with contextlib.suppress(OSError):
        request.sendall(head.encode() + body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpFront

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Requests are counted, not logged."""

    def do_GET(self) -> None:
        """``/health``, ``/metrics``, ``/streams``, ``/streams/NAME``."""
        gateway = self.server.gateway
        path = urlsplit(self.path).path.rstrip("/")
        try:
            if path == "/health":
                self._answer(200, {"status": "ok", "store": gateway.store})
                return
            self._check_token()
            if path == "/metrics":
                self._send(200, metrics_page(gateway).encode(), "text/plain; version=0.0.4")
            elif path == "/streams":
                self._answer(200, [stream.status(show=False) for stream in gateway.streams()])
            elif path.startswith("/streams/"):
                self._answer(200, gateway.stream(path.split("/")[2]).status(show=False))
            else:
                raise UnknownStreamError(
                    f"There is nothing at {path}.", do="Try /health, /metrics, /streams."
                )
        except TetherError as error:
            self._fail(error)

    def do_POST(self) -> None:
        """``/streams/NAME``: rows. ``/streams/NAME/boundary?time=SECONDS``: a boundary."""
        try:
            self._check_token()
            url = urlsplit(self.path)
            parts = url.path.strip("/").split("/")
            if parts[0] != "streams" or len(parts) < 2 or parts[2:] not in ([], ["boundary"]):
                raise UnknownStreamError(
                    f"Rows cannot be sent to {url.path}.", do="Send them to /streams/NAME."
                )
            stream = self.server.gateway.stream(parts[1])
            body = self._body()
            producer = self.headers.get("Tether-Producer", "")
            check_id(producer)
            first = self._sequence() if producer else 0
            if parts[2:]:
                time = parse_qs(url.query).get("time", [""])[0]
                self._answer(200, stream.put_boundary(producer or ANONYMOUS, first, _number(time)))
                return
            kind = self.headers.get("Content-Type", "").split(";")[0].strip()
            read = from_ipc if kind == ARROW else from_ndjson
            rows = read(stream.name, stream.schema, body)
            self._answer(200, stream.put(producer or ANONYMOUS, first, rows))
        except TetherError as error:
            self._fail(error)

    def _check_token(self) -> None:
        wanted = self.server.gateway.config.token
        if wanted is None:
            return
        shown = self.headers.get("Authorization", "")
        if not hmac.compare_digest(f"Bearer {wanted}".encode(), shown.encode()):
            raise NotAllowedError(
                "This gateway asks for a token, and the one that came is not it.",
                do="Send the header Authorization: Bearer ….",
            )

    def _sequence(self) -> int:
        text = self.headers.get("Tether-Sequence", "")
        if not text.isdecimal() or len(text) > 18:
            raise BadRowsError(
                "Rows of a named producer came without their number.",
                why=f"Tether-Sequence is {text!r}.",
                do="Send the header Tether-Sequence: number of the first row, from 1.",
            )
        return int(text)

    def _body(self) -> bytes:
        limit = self.server.gateway.config.batch_bytes
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks(limit)
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise _too_large(length, limit)
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise BadRowsError("The request broke off.", do="Send it again.")
        return data

    def _chunks(self, limit: int) -> bytes:
        total = 0
        parts: list[bytes] = []
        while True:
            line = self.rfile.readline(100).split(b";")[0].strip()
            try:
                size = int(line, 16)
                if size < 0:  # it would be read to the connection's end
                    raise ValueError(line)
            except ValueError:
                raise BadRowsError("The request broke off.", do="Send it again.") from None
            total += size
            if total > limit:
                raise _too_large(str(total), limit)
            part = self.rfile.read(size)
            self.rfile.readline(100)
            if len(part) < size:
                raise BadRowsError("The request broke off.", do="Send it again.")
            if not size:
                return b"".join(parts)
            parts.append(part)

    def _answer(self, status: int, answer: Any) -> None:
        self._send(status, msgspec.json.encode(answer) + b"\n", "application/json")

    def _fail(self, error: TetherError) -> None:
        status = error.http_status if isinstance(error, GatewayError) else 400
        told = {"error": error.code, "what": error.what, "why": error.why, "do": error.do}
        # The rest of a request that was refused half-way is not the next request.
        self.close_connection = True
        self._send(status, msgspec.json.encode(told) + b"\n", "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _too_large(length: str, limit: int) -> TooLargeError:
    return TooLargeError(
        f"A request of {length or 'unknown'} bytes is more than this gateway takes.",
        why=f"Its limit is {limit} bytes.",
        do="Send smaller ones, or raise --batch-bytes.",
    )


def _number(text: str) -> float:
    try:
        if math.isfinite(time := float(text)):
            return time
        raise ValueError(text)
    except ValueError:
        raise BadRowsError(
            f"{text!r} is not a time.", do="Send boundary?time=SECONDS of event time."
        ) from None
