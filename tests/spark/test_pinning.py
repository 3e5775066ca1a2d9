"""Slots are placed when executors have stopped joining."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tether.spark.places import pinning


@pytest.mark.parametrize(
    ("joined", "placed"),
    [
        ({}, 1.5),  # perhaps Spark starts them only when there is work
        ({"a": 1.0, "b": 2.0, "c": 3.0}, 4.5),
        ({str(second): float(second) for second in range(60)}, 20.0),
    ],
)
def test_executors_are_waited_for_until_none_joins_any_more(monkeypatch, joined, placed):
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    def live_executors(_):
        return frozenset(["driver", *(name for name, since in joined.items() if since <= now)])

    monkeypatch.setattr(pinning, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(pinning, "live_executors", live_executors)
    pinning.await_executors(SimpleNamespace(sparkContext=None), 20.0)
    assert now == pytest.approx(placed, abs=0.25)
