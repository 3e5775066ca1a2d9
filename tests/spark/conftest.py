"""Tests here that use a session, or start Spark themselves, are marked; the others are fast tests."""

from __future__ import annotations

import pytest

from .counting import CountingQuery, skewed_keys
from .one_slot import Harness


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in str(item.path) and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def counting(spark, tmp_path):
    """A count of skewed keys, in six epochs."""
    return CountingQuery(spark, tmp_path, skewed_keys(epochs=6, rows=5000, keys=300, seed=3))


@pytest.fixture
def made(tmp_path):
    """Makes slots that run alone (``one_slot``), and closes them."""
    harnesses = []

    def make(policy, operator=None):
        harnesses.append(Harness(policy, tmp_path, operator))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.close()
