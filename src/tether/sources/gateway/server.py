"""A gateway as a process: opens the store, listens, and ends in good order when it is asked to."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError
from tether.sources.gateway.config import host_and_port
from tether.sources.gateway.errors import GatewayError
from tether.sources.gateway.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tether.sources.gateway.config import GatewayConfig


class GatewayServer:
    """A running gateway: ports open, streams ready.

    Args:
        config: Its settings.

    Example:
        >>> import tempfile, pathlib
        >>> from tether.sources.gateway.config import GatewayConfig
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "store"
        >>> server = GatewayServer(GatewayConfig(store=folder, listen="127.0.0.1:0"))
        >>> server.flight_address.startswith("grpc://127.0.0.1:")
        True
        >>> server.stop()
    """

    def __init__(self, config: GatewayConfig) -> None:
        from tether.sources.gateway.flight import FlightFront  # noqa: PLC0415 - loads gRPC
        from tether.sources.gateway.http import HttpFront  # noqa: PLC0415

        self.config = config
        pair = _certificate(config.certificate, config.key)
        self.gateway = Gateway(config)
        host, port = host_and_port(config.listen)
        try:
            self._flight = FlightFront(
                self.gateway, f"{config.scheme}://{host}:{port}", [pair] if pair else []
            )
        except OSError as error:
            self.gateway.close()
            raise _taken(config.listen, error) from error
        self.flight_address = f"{config.scheme}://{host}:{self._flight.port}"
        self._http: HttpFront | None = None
        self.http_address = ""
        if config.http is not None:
            try:
                self._http = HttpFront(self.gateway, host_and_port(config.http), _tls(config))
            except OSError as error:
                self._flight.shutdown()
                self.gateway.close()
                raise _taken(config.http, error) from error
            scheme = "http" if config.certificate is None else "https"
            self.http_address = (
                f"{scheme}://{host_and_port(config.http)[0]}:{self._http.server_port}"
            )
            threading.Thread(target=self._http.serve_forever, daemon=True, name="http").start()

    def described(self) -> dict[str, Any]:
        """What the program that started it wants to know."""
        return {
            "flight": self.flight_address,
            "http": self.http_address or None,
            "store": self.gateway.store,
            "streams": [stream.name for stream in self.gateway.streams()],
            "lost": {
                stream.name: stream.lost.at_most
                for stream in self.gateway.streams()
                if stream.lost is not None
            },
        }

    def stop(self) -> None:
        """Take nothing more in, make everything durable, let go of the store."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        # Connections that are open would be waited for; what they bring from now on is refused.
        closing = threading.Thread(target=self._flight.shutdown, daemon=True)
        closing.start()
        self.gateway.close()


def serve(config: GatewayConfig, told: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        config: Its settings.
        told: Called once, when everything is open, with one line of JSON.
    """
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    server = GatewayServer(config)
    told(json.dumps(server.described()))
    ending.wait()
    server.stop()


def _certificate(certificate: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    if certificate is None or key is None:
        return None
    try:
        return certificate.read_bytes(), key.read_bytes()
    except OSError as error:
        raise BadValueError(
            "The certificate for TLS cannot be read.", why=str(error), do="Check the paths."
        ) from error


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise BadValueError(
            "The certificate for TLS cannot be used.", why=str(error), do="Give PEM files."
        ) from error
    return context


def _taken(address: str, error: OSError) -> GatewayError:
    return GatewayError(
        f"The gateway cannot listen at {address}.",
        why=str(error),
        do="Choose another port, or end whatever listens there.",
    )
