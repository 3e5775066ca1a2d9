"""One Spark session for all tests that need no cluster and kill no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tether.cli.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("local[2,4]", app="tether tests")
    yield session
    session.stop()
