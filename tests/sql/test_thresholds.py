"""The arithmetic of θ in the store is that of ``tether.core``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from tether.core.budget import Budget
from tether.core.placement import Placement
from tether.core.thresholds import after_failures, initial_thresholds
from tether.sql.settings import add_to_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = [
    (total, copies, failures)
    for total in (0.0, 1.0, 0.1, 1000.0, 500_000.0, 1 / 3, 5e-324, 1.7e308, math.inf, 2.0**53 + 2)
    for copies in (1, 2, 3, 7, 64, 200, 256)
    for failures in (0, 1, 2, 5, 30, 1075)
]


@pytest.fixture(scope="module")
def theta(spark: SparkSession) -> Any:
    add_to_session(spark)
    session: Any = spark
    jvm = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass("tether.sql.Thresholds").getMethods()
    method = next(m for m in methods if m.getName() == "theta")

    def call(total: float, copies: int, failures: int) -> float:
        arguments = session.sparkContext._gateway.new_array(jvm.java.lang.Object, 3)
        arguments[0] = jvm.java.lang.Double.valueOf(total)
        arguments[1] = jvm.java.lang.Long.valueOf(copies)
        arguments[2] = jvm.java.lang.Integer.valueOf(failures)
        return float(method.invoke(None, arguments))

    return call


def test_thetas_are_those_of_core_to_the_last_bit(theta: Any) -> None:
    for total, copies, failures in VECTORS:
        first = initial_thresholds(Budget(max_state_error=total), Placement(copies=copies))
        ours = theta(total, copies, failures)
        assert ours == after_failures(first, failures).theta, (total, copies, failures)
