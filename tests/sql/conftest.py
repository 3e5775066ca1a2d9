"""One Spark session for all tests of the state store that kill nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tether.cli.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/sql" in str(item.path) and "test_light" not in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("local[2,4]", app="tether sql tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
