"""A store that misbehaves: an HTTP proxy on loopback in front of a real S3-speaking server.

For tests and benchmarks of object stores: requests can be delayed (a store behind a slow network),
refused, cut off in the middle of the answer, lost after they were carried out, or answered with what
was true a while ago. Everything passes through real sockets, so the client library's own retries and
time-outs are tested too.
"""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Trouble = Literal["refuse", "cut", "lose-answer", "stall", "stale"]
"""What may happen to a request: "refuse": 503 at once. "cut": half of the answer, then the connection
ends. "lose-answer": it is carried out, but the connection ends without a word. "stall": it waits for
``stall_seconds`` first. "stale": a read is answered as it was the first time."""

_NOT_FORWARDED = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class Request:
    """What a request is, for the function that decides on its trouble."""

    method: str
    path: str
    number: int
    """How many requests came before it."""


@dataclass
class LoopbackProxy:
    """A running proxy; its settings may be changed at any time.

    Attributes:
        url: Where to send requests to.
        latency_seconds: Added to every request.
        stall_seconds: How long a stalled request waits.
        trouble: Decides on each request; None lets it pass.
        seen: How many requests have come, and how many met trouble, by kind.
    """

    url: str
    latency_seconds: float = 0.0
    stall_seconds: float = 2.0
    trouble: Callable[[Request], Trouble | None] = field(default=lambda _: None)
    seen: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _first_answers: dict[str, tuple[int, list[tuple[str, str]], bytes]] = field(
        default_factory=dict
    )

    def decide(self, method: str, path: str) -> Trouble | None:
        """Count a request, and say what happens to it."""
        with self._lock:
            number = self.seen.get("requests", 0)
            self.seen["requests"] = number + 1
        chosen = self.trouble(Request(method, path, number))
        if chosen is not None:
            with self._lock:
                self.seen[chosen] = self.seen.get(chosen, 0) + 1
        return chosen

    def remember(
        self, path: str, answer: tuple[int, list[tuple[str, str]], bytes]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The first answer that was ever given to a read of ``path``."""
        with self._lock:
            return self._first_answers.setdefault(path, answer)


@contextmanager
def loopback_proxy(target: str, *, latency_seconds: float = 0.0) -> Iterator[LoopbackProxy]:
    """Run a proxy in front of ``target`` on a free port of 127.0.0.1.

    Args:
        target: URL of the real server, for example that of moto's S3.
        latency_seconds: Added to every request.

    Example:
        >>> from http.server import SimpleHTTPRequestHandler
        >>> quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *a: None})
        >>> real = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
        >>> threading.Thread(target=real.serve_forever, daemon=True).start()
        >>> with loopback_proxy(f"http://127.0.0.1:{real.server_port}") as proxy:
        ...     connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)
        ...     proxy.trouble = lambda request: "refuse" if request.number == 0 else None
        ...     def ask():
        ...         connection.request("HEAD", "/")
        ...         answer = connection.getresponse()
        ...         return answer.status, answer.read()
        ...     ask()[0], ask()[0]
        (503, 200)
        >>> real.shutdown()
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = LoopbackProxy(f"http://127.0.0.1:{server.server_port}", latency_seconds)
    server.proxy, server.target = proxy, urlsplit(target).netloc  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        proxy: LoopbackProxy = self.server.proxy  # type: ignore[attr-defined]
        body = self._body()
        time.sleep(proxy.latency_seconds)
        trouble = proxy.decide(self.command, self.path)
        if trouble == "stall":
            time.sleep(proxy.stall_seconds)
        if trouble == "refuse":
            self._answer(503, [("Content-Type", "text/plain")], b"refused on purpose")
            return
        answer = self._ask(body)
        if self.command in ("GET", "HEAD"):
            first = proxy.remember(f"{self.command} {self.path}", answer)
            answer = first if trouble == "stale" else answer
        if trouble == "lose-answer":
            self.close_connection = True
            self.connection.close()
            return
        self._answer(*answer, cut=trouble == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - the library's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.server.target, timeout=60)  # type: ignore[attr-defined]
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_FORWARDED}
        connection.request(self.command, self.path, body or None, headers)
        response = connection.getresponse()
        content = response.read()
        kept = [(k, v) for k, v in response.getheaders() if k.lower() not in _NOT_FORWARDED]
        if self.command == "HEAD":
            kept.append(("Content-Length", response.getheader("Content-Length", "0")))
        connection.close()
        return response.status, kept, content

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing: tests and benchmarks have their own reports."""
