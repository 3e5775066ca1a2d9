"""Every test here needs Spark, but for the light ones."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/sql" in str(item.path) and "test_light" not in str(item.path):
            item.add_marker(pytest.mark.spark)
