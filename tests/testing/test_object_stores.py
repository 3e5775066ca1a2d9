"""Queries whose backups are in a real S3-speaking store: slow, throttling, failing for good."""

from __future__ import annotations

import itertools
import uuid

import numpy as np
import pyarrow as pa
import pytest
from tests.backup.samples import header
from tests.testing.test_rescaling import Life, counted

import tether
from tether.backup import ObjectStore
from tether.core.errors import BackupError, TetherError
from tether.testing.proxy import loopback_proxy

ROWS = [[(7 * n + epoch) % 23 for n in range(40)] for epoch in range(10)]
# No trouble here is a silence: a time-out would only mean that the machine is busy.
PATIENT = {"connect_timeout": 60, "read_timeout": 60}
SYNC = tether.Barrier(2, mode="sync")
POLICIES = [tether.Approximate(40), tether.UpstreamBackup(), tether.Barrier(2)]


@pytest.fixture
def proxied(s3_options):
    with loopback_proxy(s3_options["endpoint_url"]) as proxy:
        yield proxy, {**s3_options, "endpoint_url": proxy.url}


def started(life, url, options, policy, *, attempts):
    retries = {"config_kwargs": {"retries": {"max_attempts": attempts}, **PATIENT}}
    return life.start(
        2,
        tolerance=policy,
        backup=url,
        backup_options={**options, **retries},
    )


@pytest.mark.long  # the client waits before it asks again: most of a minute in all
@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
def test_a_store_that_throttles_and_is_slow_costs_time_and_nothing_else(tmp_path, proxied, policy):
    proxy, options = proxied
    proxy.latency_seconds = 0.002
    turns = itertools.count()
    # Every fourth request: the client's own retry is then never refused again.
    proxy.trouble = lambda _: "refuse" if next(turns) % 4 == 3 else None
    url = f"s3://backups/{uuid.uuid4().hex}"
    life = Life(tmp_path, ROWS)
    query = started(life, url, options, policy, attempts=8)
    life.go_on(query, 3)
    query.rescale("count", 3)
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    query.stop()
    again = started(life, url, options, policy, attempts=8)
    life.go_on(again, 2)
    assert counted(again) == life.truth()
    assert again.bound().spent == 0
    again.stop()
    assert proxy.seen["refuse"] > 5


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [tether.Approximate(40), tether.MiniBatch(), tether.UpstreamBackup()],
    ids=lambda one: one.name,
)
def test_a_store_that_fails_for_good_stops_the_query_and_loses_nothing(tmp_path, proxied, policy):
    proxy, options = proxied
    url = f"s3://backups/{uuid.uuid4().hex}"
    life = Life(tmp_path, ROWS)
    query = started(life, url, options, policy, attempts=1)
    life.go_on(query, 2)
    proxy.trouble = lambda _: "refuse"
    with pytest.raises(TetherError) as told:
        life.go_on(query, 4)
    assert "could not" in told.value.what
    assert told.value.do
    proxy.trouble = lambda _: None  # or its lock would stay for a minute
    query.stop()
    done = len(list((tmp_path / "checkpoint" / "commits").iterdir()))
    life.read = done
    again = started(life, url, options, policy, attempts=1)
    life.go_on(again, 1)
    assert counted(again) == life.truth()
    assert again.bound().spent == 0
    again.stop()


@pytest.mark.long
def test_barrier_goes_on_without_snapshots_and_says_so(tmp_path, proxied):
    proxy, options = proxied
    url = f"s3://backups/{uuid.uuid4().hex}"
    life = Life(tmp_path, ROWS)
    query = started(life, url, options, SYNC, attempts=1)
    life.go_on(query, 3)
    proxy.trouble = lambda request: "refuse" if request.method == "PUT" else None
    life.go_on(query, 4)
    proxy.trouble = lambda _: None
    assert "given-up" in [event.what for event in query.story()]
    life.go_on(query, 2)
    assert counted(query) == life.truth()
    query.stop()
    again = started(life, url, options, SYNC, attempts=1)
    life.go_on(again, 1)
    assert counted(again) == life.truth()
    again.stop()


@pytest.mark.long
@pytest.mark.parametrize("trouble", [None, "refuse", "cut", "lose-answer"])
def test_a_frame_of_many_parts_is_there_as_a_whole_or_not_at_all(proxied, s3_options, trouble):
    """s3fs sends what is larger than 100 MB in parts of 50 MB."""
    proxy, options = proxied
    options = {
        **options,
        "config_kwargs": {"retries": {"max_attempts": 1}, **PATIENT},
    }
    url = f"s3://backups/{uuid.uuid4().hex}"
    noise = np.random.default_rng(1).integers(0, 1 << 62, 15_000_000)
    content = {"values": [pa.RecordBatch.from_pydict({"n": noise})]}
    seen = []

    def once(request):
        part = "partNumber=2" in request.path
        seen.append(part)
        return trouble if part and sum(seen) == 1 else None

    proxy.trouble = once
    store = ObjectStore(url, options)
    try:
        ref = store.append(header(kind="full"), content)
    except BackupError:
        assert trouble is not None
        found = [ref for ref, _ in ObjectStore(url, s3_options).frames()]
        assert found == []
        ref = store.append(header(kind="full", attempt="again"), content)
    assert any(seen), "it was not sent in parts"
    (batch,) = ObjectStore(url, s3_options).read(ref).parts["values"]
    assert np.array_equal(batch["n"].to_numpy(), noise)
