"""Settings of a gateway, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - part of a public signature

from tether.core.checks import amount
from tether.core.errors import BadValueError


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """What a gateway is told at its start.

    Args:
        store: Folder of its logs. One gateway at a time.
        listen: ``host:port`` of Arrow Flight; port 0: any free one.
        http: ``host:port`` of HTTP; None: none.
        max_lost: L: most acknowledged items that all crashes together may lose, in each stream.
            Of these l = L / 2 may be at risk at a time, and half as many after every crash that cost
            something (AF-Stream 2019 §3.5.2). 0: every item is durable before it is acknowledged.
        max_unacked: Γ: most items that all dying producers together may lose, in each stream.
            Each producer gets γ = Γ / 2 / ``producers``.
        producers: How many producers at a time Γ is shared among.
        streams: Streams that exist from the beginning, by name, with their schema as short text.
        open: Whether a producer may make a new stream by sending to it.
        memory_bytes: Above this, items are left to the disk.
        store_bytes: Above this, producers have to wait until a query has processed more.
        batch_bytes: Largest batch, or HTTP body, that is taken.
        connections: Most connections at a time, of each kind.
        token: What clients must show; None: nothing.
        certificate: PEM file for TLS, with ``key``.
        key: PEM file of the certificate's key.
        idle_seconds: An HTTP connection that is silent for so long is closed.
        part: Which of the processes behind one address this is, from 0.
        parts: How many they are; see ``processes``.
    """

    store: Path
    listen: str = "127.0.0.1:7070"
    http: str | None = None
    max_lost: float = 10_000
    max_unacked: float = math.inf
    producers: int = 1
    streams: dict[str, str] = field(default_factory=dict)
    open: bool = True
    memory_bytes: int = 128 << 20
    store_bytes: int = 64 << 30
    batch_bytes: int = 64 << 20
    connections: int = 2000
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    idle_seconds: float = 60.0
    part: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        amount("max_lost", self.max_lost, unit="items", zero="exact", infinite="never durable")
        amount("max_unacked", self.max_unacked, unit="items", zero="exact", infinite="no limit")
        for name in ("memory_bytes", "store_bytes", "batch_bytes", "connections", "producers"):
            if getattr(self, name) < 1:
                raise BadValueError(
                    f"{name}={getattr(self, name)} is too small.", do="Give a number above 0."
                )
        if (self.certificate is None) != (self.key is None):
            raise BadValueError(
                "Only one of certificate and key was given.",
                why="TLS needs both.",
                do="Give --certificate and --key, or none of them.",
            )
        for address in (self.listen, self.http):
            if address is not None:
                host_and_port(address)

    @property
    def scheme(self) -> str:
        """Scheme of Flight addresses."""
        return "grpc" if self.certificate is None else "grpc+tls"


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of ``host:port``.

    Example:
        >>> host_and_port("127.0.0.1:7070")
        ('127.0.0.1', 7070)
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadValueError(
            f"{address!r} is not an address.", do="Write host:port, for example 127.0.0.1:7070."
        )
    return host.strip("[]"), int(port)


def flight_location(address: str) -> str:
    """A gateway's address with its scheme; ``grpc://`` where none is given.

    Example:
        >>> flight_location("localhost:7070")
        'grpc://localhost:7070'
    """
    if address.startswith(("grpc://", "grpc+tls://", "grpc+tcp://")):
        return address
    host_and_port(address)
    return f"grpc://{address}"
