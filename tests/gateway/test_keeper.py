"""How a query speaks with its gateways: a real gateway, and Spark's logs written by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.gateway.serving import served

import tether
from tether.core.placement import Placement
from tether.observe.story import Story
from tether.producer import Producer
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.errors import UnreachableError
from tether.sources.gateway.spark_source import SourceOptions
from tether.spark.gateways.keeper import GatewayKeeper

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema({"id": pa.int64()})


def keeper(address: str, folder: Path, policy: Any, *, lasts: bool = True) -> GatewayKeeper:
    node = SimpleNamespace(feedback_to=None)
    one = SimpleNamespace(policy=policy, placement=Placement(), node=node)
    query: Any = SimpleNamespace(operators={"only": one})
    options = SourceOptions.parse({"gateway": address, "stream": "s"})
    leaf: Any = SimpleNamespace(options=options)
    return GatewayKeeper(query, [leaf], str(folder), Story(), lasts=lasts)


def spark_logs(folder: Path, epoch: int, ends: dict[str, int], *, committed: bool) -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
    if committed:
        (folder / "commits" / str(epoch)).write_text("v1\n{}")


def await_commit(calls: GatewayCalls, upto: int) -> None:
    while calls.look("s").committed < upto:
        pass


def test_items_go_once_spark_has_committed_and_not_before(tmp_path: Path) -> None:
    with served(tmp_path / "store", streams={"s": "id bigint"}, max_lost=1000) as gateway:
        calls = GatewayCalls(gateway.flight)
        speaks = keeper(gateway.flight, tmp_path, tether.Approximate(10, 80, 40))
        # Half of the query's L, which is less than the gateway's.
        assert calls.look("s").limit == 40
        with Producer(gateway.flight, "s", SCHEMA, id="p") as producer:
            assert producer._gamma == 20
            producer.send(pa.record_batch([list(range(30))], schema=SCHEMA))
        store = calls.status("s").store
        spark_logs(tmp_path, 0, {store: 10}, committed=True)
        spark_logs(tmp_path, 1, {store: 25}, committed=False)
        speaks.after_epoch(0, None)
        await_commit(calls, 10)
        speaks.after_epoch(1, None)
        assert speaks.facts()[0].pending_items <= 20
        assert calls.look("s").committed == 10
        spark_logs(tmp_path, 1, {store: 25}, committed=True)
        await_commit(calls, 25)
        spark_logs(tmp_path, 2, {store: 30}, committed=True)
        speaks.after_epoch(2, lambda: 1)  # a query that goes back to the end of epoch 1
        speaks.end()
        assert calls.look("s").committed == 25
        assert len(calls.look("s").readers) == 1
        again = keeper(gateway.flight, tmp_path, tether.MiniBatch())
        assert len(calls.look("s").readers) == 1  # the same query, by its checkpoint
        assert calls.look("s").limit == 0
        again.end()


def test_a_query_that_cannot_be_restarted_is_forgotten(tmp_path: Path) -> None:
    with served(tmp_path / "store", streams={"s": "id bigint"}) as gateway:
        speaks = keeper(gateway.flight, tmp_path, tether.NoTolerance(), lasts=False)
        speaks.end()
        assert GatewayCalls(gateway.flight).look("s").readers == {}


def test_a_query_does_not_begin_without_its_gateway(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        keeper("127.0.0.1:9", tmp_path, tether.MiniBatch())
