"""An object store behind a bad network: what was said to be durable is, and nothing torn is read."""

from __future__ import annotations

import random
import uuid

import pytest

from tether.backup import ObjectStore
from tether.core.errors import BackupError
from tether.testing.proxy import loopback_proxy

from .samples import commit, header, parts, record, value_of

# Few retries of the client itself, so that its failures reach us within the test. No trouble here is
# a silence: a time-out would only mean that the machine is busy.
PATIENCE = {
    "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 60, "read_timeout": 60}
}
TROUBLES = ["refuse", "cut", "lose-answer"]


@pytest.fixture
def proxied(s3_options):
    with loopback_proxy(s3_options["endpoint_url"]) as proxy:
        yield proxy, {**s3_options, "endpoint_url": proxy.url, **PATIENCE}


def test_what_was_acknowledged_survives_any_mix_of_troubles(proxied, s3_options):
    proxy, options = proxied
    url = f"s3://backups/{uuid.uuid4().hex}"
    chance = random.Random(11)
    # Nobody renews the lock meanwhile: the troubles meet the same requests in every run.
    store = ObjectStore(url, options, lease_seconds=3600.0)
    durable, failed = {}, 0
    with store.lock("test"):
        for epoch in range(10):
            # The client tries again by itself: only a bad spell gets through to us.
            odds, troubles = (0.9 if epoch in (6, 7) else 0.15), TROUBLES
            if epoch == 3:  # no answer at all: a short one that is cut off may yet be whole
                odds, troubles = 1.0, ["refuse", "lose-answer"]
            proxy.trouble = lambda _, odds=odds, troubles=troubles: (
                chance.choice(troubles) if chance.random() < odds else None
            )
            try:
                head = header(epoch=epoch, sequence=epoch, kind="full")
                ref = store.append(head, parts(epoch))
                store.append_commit(record(epoch, count=commit(ref, head)))
            except BackupError:
                failed += 1
            else:
                durable[epoch] = ref
        proxy.trouble = lambda _: None
    assert failed, "the network was not bad enough"
    assert durable, "nothing got through"
    healthy = ObjectStore(url, s3_options)
    history = healthy.read_commits().history
    live = history.live_frames()
    for epoch, ref in durable.items():
        assert value_of(healthy.read(ref).parts) == epoch
    assert durable[max(durable)] in live


def test_a_read_that_is_cut_off_is_an_error_and_not_a_shorter_frame(proxied, s3_options):
    proxy, options = proxied
    url = f"s3://backups/{uuid.uuid4().hex}"
    ref = ObjectStore(url, s3_options).append(header(), parts(7, rows=5000))
    proxy.trouble = lambda request: "cut" if request.method == "GET" else None
    with pytest.raises(BackupError):
        ObjectStore(url, options).read(ref)
    proxy.trouble = lambda _: None
    assert value_of(ObjectStore(url, options).read(ref).parts) == 7


def test_a_store_that_is_slow_is_only_slow(proxied):
    proxy, options = proxied
    proxy.latency_seconds = 0.05
    proxy.stall_seconds = 0.5
    proxy.trouble = lambda request: "stall" if request.method == "PUT" else None
    store = ObjectStore(f"s3://backups/{uuid.uuid4().hex}", options)
    assert value_of(store.read(store.append(header(), parts(3))).parts) == 3
    assert proxy.seen["stall"] >= 1
