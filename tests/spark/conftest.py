"""Tests here that use a session, or start Spark themselves, are marked; the others are fast tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in str(item.path) and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
