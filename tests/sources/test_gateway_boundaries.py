"""An exchange behind a gateway knows what the gateway's producers have said, up to what was read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tether.producer import Producer
from tether.sources.exchange.gateway_boundaries import GatewayBoundaries
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.spark_source import SourceOptions
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from pathlib import Path


def test_what_producers_have_said(tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    with gateway(tmp_path / "store", "--stream", "s=id bigint", "--producers", "2") as process:
        options = SourceOptions.parse({"gateway": process.flight, "stream": "s"})
        found = GatewayBoundaries(options, str(tmp_path / "checkpoint"), producers=2)
        with (
            Producer(process.flight, "s", "id bigint", id="a") as one,
            Producer(process.flight, "s", "id bigint", id="b") as other,
        ):
            one.send([{"id": 1}, {"id": 2}])
            one.boundary(10.0)  # number 3
            other.send({"id": 3})
            other.boundary(7.5)  # number 5
            one.boundary(12.0)  # number 6
            other.boundary(20.0)  # number 7
        store = GatewayCalls(process.flight).look("s").store

        def read(epoch: int, upto: int) -> int | None:
            line = json.dumps({store: upto})
            (offsets / str(epoch)).write_text(f"v1\n{{}}\n{line}\n")
            return found.before(epoch)

        assert read(0, 4) is None  # only one has said anything that was read
        assert read(1, 5) == 7_500_000
        assert read(2, 6) == 7_500_000
        assert read(3, 7) == 12_000_000
        process.kill()
        assert found.before(3) is None  # as long as it is away
