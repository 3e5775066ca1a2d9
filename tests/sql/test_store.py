"""A store is a map that remembers its versions: random changes, aborts, runs again, and restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sql.direct import Provider, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
EXAMPLES = int(os.environ.get("TETHER_SQL_EXAMPLES", "1")) * 5
Rows = dict[bytes, bytes]

KEYS = st.integers(0, 40).map(lambda k: b"key %d" % k + bytes(k % 20))
VALUES = st.one_of(
    st.binary(min_size=8, max_size=8),
    st.binary(max_size=60),
    st.integers(1, 150_000).map(lambda n: b"v" * n),  # longer than a page
)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), VALUES)), max_size=25)
ENDS = st.sampled_from(["commit", "commit", "abort", "again", "restart"])
BATCHES = st.lists(st.tuples(CHANGES, ENDS), min_size=1, max_size=8)


def change(store: Store, rows: Rows, changes: list[tuple[bytes, bytes | None]]) -> Rows:
    """Make the changes in a store and in a copy of the rows that it should hold."""
    after = dict(rows)
    before = store.iterator()
    for key, value in changes:
        assert store.get(key) == after.get(key)
        if value is None:
            store.remove(key)
            after.pop(key, None)
        else:
            store.put(key, value)
            after[key] = value
    assert store.rest(before) == rows  # an iterator sees nothing of what came after it
    assert store.everything() == after
    return after


@settings(max_examples=EXAMPLES, suppress_health_check=UNCHECKED)
@given(batches=BATCHES, divergence=st.sampled_from(["count", "l1"]))
def test_an_exact_store_is_a_map_that_survives_everything(
    spark: SparkSession,
    batches: list[tuple[list[tuple[bytes, bytes | None]], str]],
    divergence: str,
) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        provider = Provider(spark, Path(folder), 0, divergence=divergence, snapshotRatio="0.5")
        rows: Rows = {}
        version = 0
        for changes, end in batches:
            store = provider.at(version)
            after = change(store, rows, changes)
            if end == "abort":
                store.abort()
                continue
            assert store.commit() == version + 1
            assert store.keys == len(after)
            assert store.metric("tetherDivergence") == 0
            if (
                end == "again"
            ):  # the driver did not commit the batch: it runs once more, cut otherwise
                store = provider.at(version)
                assert store.everything() == rows
                after = change(store, rows, changes[::-1][1:])
                store.commit()
            elif end == "restart":
                provider = Provider(spark, Path(folder), 0, divergence=divergence)
            provider.maintain()
            rows, version = after, version + 1
            assert provider.at(version).everything() == rows


@settings(max_examples=EXAMPLES, suppress_health_check=UNCHECKED)
@given(batches=BATCHES, theta=st.integers(1, 60), divergence=st.sampled_from(["count", "l1"]))
def test_a_bounded_store_loses_no_more_than_it_says(
    spark: SparkSession,
    batches: list[tuple[list[tuple[bytes, bytes | None]], str]],
    theta: int,
    divergence: str,
) -> None:
    def error(found: Rows, key: bytes) -> int:
        one, other = found.get(key), rows.get(key)
        changed = int(one != other)
        return changed if divergence == "count" else abs(len(one or b"") - len(other or b""))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        provider = Provider(spark, Path(folder), theta, divergence=divergence)
        rows: Rows = {}
        version = 0
        for changes, end in batches:
            store = provider.at(version)
            rows = change(store, rows, changes)
            version = store.commit()
            assert store.metric("tetherDivergence") <= store.metric("tetherThreshold") <= theta
            if end == "restart":
                at_risk = store.metric("tetherDivergence")
                provider.settle()
                provider = Provider(spark, Path(folder), theta, divergence=divergence)
                store = provider.at(version)
                found = store.everything()
                assert sum(error(found, key) for key in found.keys() | rows.keys()) <= at_risk
                rows = found
                store.commit()
                version += 1


def test_space_of_values_that_grew_is_used_again(spark: SparkSession, tmp_path: Path) -> None:
    provider = Provider(spark, tmp_path, float("inf"))
    rows: Rows = {}
    for batch in range(12):
        store = provider.at(batch)
        for key in range(20):
            rows[b"%d" % key] = b"x" * (2000 * (batch + 1) + key)
            store.put(b"%d" % key, rows[b"%d" % key])
        store.commit()
    held = int(store.store.metrics().memoryUsedBytes())
    alive = sum(map(len, rows.values()))
    assert held < 4 * alive + (2 << 20)
    assert provider.at(12).everything() == rows


@pytest.mark.parametrize("ending", ["close", "vanish"])
def test_a_store_that_is_closed_in_order_keeps_everything(
    spark: SparkSession, tmp_path: Path, ending: str
) -> None:
    provider = Provider(spark, tmp_path, 100)
    store = provider.at(0)
    store.put(b"a", b"1")
    store.commit()
    if ending == "close":
        provider.close()
    found = Provider(spark, tmp_path, 100).at(1).everything()
    assert found == ({b"a": b"1"} if ending == "close" else {})
