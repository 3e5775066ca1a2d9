"""The gateway's figures as text that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.sources.gateway.gateway import Gateway
    from tether.sources.gateway.stream import GatewayStream

_HELP = {
    "items_received": ("counter", "Newest number given to an item."),
    "items_committed": ("counter", "Items up to this number are processed by every reader."),
    "items_at_risk": ("gauge", "Acknowledged items that a crash now would lose."),
    "items_at_risk_limit": ("gauge", "l: most items that may be at risk."),
    "items_lost": ("counter", "Most items lost in all crashes so far."),
    "producers_lost": ("gauge", "Most items that absent or dead producers may have lost."),
    "crashes_that_lost": ("counter", "Crashes that lost something."),
    "producers": ("gauge", "Producers that are connected."),
    "rows": ("counter", "Rows taken in by this process."),
    "batches": ("counter", "Batches taken in by this process."),
    "duplicates": ("counter", "Rows that came again and were left out."),
    "refused": ("counter", "Batches refused."),
    "saves": ("counter", "Times that pending items were made durable."),
    "store_bytes": ("gauge", "Bytes of the durable log."),
    "memory_bytes": ("gauge", "Bytes of items in memory."),
}


def metrics_page(gateway: Gateway) -> str:
    """All figures of all streams."""
    figures = [(stream.name, dict(_figures(stream))) for stream in gateway.streams()]
    lines = []
    for name, (kind, help_) in _HELP.items():
        lines += [f"# HELP tether_gateway_{name} {help_}", f"# TYPE tether_gateway_{name} {kind}"]
        lines += [
            f'tether_gateway_{name}{{stream="{stream}"}} {values[name]:g}'
            for stream, values in figures
        ]
    return "\n".join(lines) + "\n"


def _figures(stream: GatewayStream) -> Iterator[tuple[str, float]]:
    now = stream.status(show=False)
    yield "items_received", now.received
    yield "items_committed", now.committed
    yield "items_at_risk", now.at_risk
    yield "items_at_risk_limit", now.limit
    yield "items_lost", sum(loss.at_most for loss in now.losses)
    yield "producers_lost", now.gone
    yield "crashes_that_lost", now.failures
    yield "producers", now.producers
    for name in ("rows", "batches", "duplicates", "refused", "saves"):
        yield name, stream.counts[name]
    yield "store_bytes", stream.store_bytes
    yield "memory_bytes", stream.memory_bytes
