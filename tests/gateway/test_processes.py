"""Several processes on one port: each producer has its own, and readers see all of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyarrow import flight
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.gateway.serving import SCHEMA, ids

from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.config import GatewayConfig
from tether.sources.gateway.errors import GatewayError
from tether.sources.gateway.gateway import Gateway
from tether.sources.gateway.processes import check_processes
from tether.sources.gateway.spark_source import GatewayReader, SourceOptions
from tether.testing.gateways import gateway
from tether.testing.processes import descendants, kill

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = ("--processes", "2", "--stream", "s=id bigint", "--max-lost", "400")


def read(address: str) -> Counter[int]:
    """As a query would: through the source, from all processes."""
    reader = GatewayReader(SourceOptions.parse({"gateway": address, "stream": "s"}))
    end = reader.latestOffset({}, ReadAllAvailable())
    assert len(end) == 2
    found: Counter[int] = Counter()
    for part in reader.partitions({}, end):
        for batch in reader.read(part):
            found.update(batch["id"].to_pylist())
    return found


def test_producers_are_shared_and_a_killed_process_comes_back(tmp_path: Path) -> None:
    with gateway(tmp_path / "store", *OPTIONS) as process:
        parts = process.told["parts"]
        calls = [GatewayCalls(address) for address in parts]
        assert GatewayCalls(process.flight).parts() == tuple(parts)
        assert {one.look("s").limit for one in calls} == {100}  # half of L, shared by two
        producers = [Producer(process.flight, "s", SCHEMA, id=f"p{name}") for name in range(8)]
        for name, one in enumerate(producers):
            one.send(ids(100 * name, 60))
            one.flush()
        assert sum(one.look("s").producers for one in calls) == 8
        assert all(one.look("s").producers for one in calls)
        victim = descendants(process.pid)[0]
        kill(victim)
        for name, one in enumerate(producers):
            one.send(ids(100 * name + 60, 40))
            one.flush()
            one.close()
        found = read(process.flight)
        lost = sum(loss.at_most for one in calls for loss in one.look("s").losses)
        assert max(found.values()) == 1
        assert len(found) + lost == 800
        assert lost <= 100
    other = GatewayConfig(store=tmp_path / "store", streams={"s": "id bigint"})
    with pytest.raises(GatewayError, match="made by 2 processes, not by 3"):
        check_processes(other, 3)
    with pytest.raises(GatewayError, match="--processes 2"):
        Gateway(other)


def test_a_plain_client_is_told_where_to_go(tmp_path: Path) -> None:
    with gateway(tmp_path / "store", *OPTIONS) as process:
        owners = set()
        for address in process.told["parts"]:
            client = flight.connect(address)
            command = json.dumps({"stream": "s", "producer": "plain"}).encode()
            writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), SCHEMA)
            owner = json.loads(reader.read().to_pybytes()).get("owner")
            if owner:
                owners.add(owner)
                with pytest.raises(flight.FlightServerError, match=f"served at {owner}"):
                    writer.close()
            else:
                mine = address
                writer.close()
            client.close()
        assert owners == {mine}
