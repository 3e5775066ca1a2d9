"""Serving the page: from the driver beside its queries, or from a command for a backup directory."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from typing import TYPE_CHECKING, Any

import uvicorn

from tether.core.errors import BadValueError, TetherError
from tether.ui.app import LivePage
from tether.ui.sources import Directory, ThisProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tether.ui.sources import Source

PORT = 4060
"""The first port that is tried; where it is taken, the next ones are, as Spark's own page does it."""
TRIES = 16
START_SECONDS = 20.0


class Page:
    """A page that is being served, on a thread of its own.

    ``address`` is what to open. It ends with ``stop()``, or with the process.
    """

    def __init__(
        self, address: str, server: uvicorn.Server, live: LivePage, source: Source
    ) -> None:
        self.address = address
        self._server, self._live, self._source = server, live, source
        self._thread = threading.Thread(target=server.run, name="tether-ui", daemon=True)

    def start(self, sock: socket.socket) -> None:
        """Answer from now on."""
        self._thread = threading.Thread(
            target=self._server.run, args=([sock],), name="tether-ui", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._live.stopping = True
        self._server.should_exit = True
        self._thread.join(10)
        if isinstance(self._source, Directory):
            self._source.reader.stop()

    def wait(self) -> None:
        """Return when it is over; Ctrl-C is let through."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Page({self.address!r})"


def serve(
    spark: SparkSession | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    drills: bool = False,
    quiet: bool = False,
) -> Page:
    """Serve the live page of all Tether queries of this driver, those of both doors.

    Args:
        spark: The session: queries under ``tether.sql.bounded`` are shown too, those that start from
            now on. Without it only queries of operators are.
        host: Address to listen on. Anything but loopback asks for a token.
        port: Port to listen on; by default the first free one from 4060 on. 0: any.
        token: What the page asks for, on any address; made up where it is needed and not given.
        drills: Whether the page may kill a process of the query on purpose.
        quiet: Print no address.

    Example:
        ::

            page = tether.ui.serve(spark)
            # Tether's live page: http://127.0.0.1:4060/
            ...
            page.stop()
    """
    if spark is not None:
        from tether.sql.feeding import feed_session  # noqa: PLC0415 - needs PySpark

        feed_session(spark)
    return _serve(ThisProcess(), host=host, port=port, token=token, drills=drills, quiet=quiet)


def serve_directory(
    url: str,
    options: Mapping[str, Any] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    quiet: bool = False,
) -> Page:
    """Serve the page of the query whose backups are in a directory, running or not.

    Args:
        url: The backup directory or URL; of a bounded SQL query, its checkpoint.
        options: Of the store's file system.
        host: As for ``serve``.
        port: As for ``serve``.
        token: As for ``serve``.
        quiet: Print no address.

    Raises:
        BadValueError: No query has told anything there.
    """
    source = Directory(url, options)
    if not source.feeds():
        raise BadValueError(
            f"There is nothing to show in {url}.",
            why="No query of this version of Tether has kept its feed there.",
            do="Give the backup directory of a query, or the checkpoint of a bounded SQL query.",
        )
    source.reader.follow()
    return _serve(source, host=host, port=port, token=token, drills=False, quiet=quiet)


def _serve(
    source: Source, *, host: str, port: int | None, token: str | None, drills: bool, quiet: bool
) -> Page:
    if token is None and not _is_loopback(host):
        token = secrets.token_urlsafe(24)
    sock = _listen(host, port)
    live = LivePage(source, token=token, drills=drills)
    config = uvicorn.Config(
        live.app,
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        ws="none",
    )
    server = uvicorn.Server(config)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
    page = Page(address, server, live, source)
    page.start(sock)
    if not quiet:
        print(f"Tether's live page: {address}", flush=True)  # noqa: T201 - asked for
    return page


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; by default on the first free one of a few ports."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for wanted in [port] if port is not None else [*range(PORT, PORT + TRIES), 0]:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, wanted))
            sock.listen(128)
        except OSError as error:
            sock.close()
            last = error
            continue
        return sock
    raise TetherError(
        f"The live page cannot be served on {host}, port {port}.",
        why=f"{last}.",
        do="Choose another port, or port=0 for any that is free.",
    )
