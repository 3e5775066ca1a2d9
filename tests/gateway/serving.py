"""Gateways for tests: in this process or in one of their own, and what is in them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.config import GatewayConfig
from tether.sources.gateway.server import GatewayServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SCHEMA = pa.schema({"id": pa.int64()})
SEED = int(os.environ.get("TETHER_SEED", "20"))


def ids(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([list(range(first, first + count))], schema=SCHEMA)


def there(address: str, stream: str = "s") -> list[int]:
    calls = GatewayCalls(address)
    now = calls.status(stream)
    if now.shown <= now.committed:
        return []
    return calls.read(stream, now.committed + 1, now.shown)["id"].to_pylist()


class Served(NamedTuple):
    flight: str
    http: str


@contextmanager
def served(store: Path, **options: Any) -> Iterator[Served]:
    """A gateway in this process: for what needs no kill."""
    config = GatewayConfig(store=store, listen="127.0.0.1:0", http="127.0.0.1:0", **options)
    server = GatewayServer(config)
    try:
        yield Served(server.flight_address, server.http_address)
    finally:
        server.stop()
