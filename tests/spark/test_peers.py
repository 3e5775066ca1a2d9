"""Contenders on Spark give the right answer on a tiny workload, behind the slow store too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.contenders import find
from bench.contenders.course import Course
from bench.scenario import Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.mark import ParameterSet
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("contender", "latency"),
    [
        ("spark-stateless", 0.0),
        ("spark-rocksdb", 0.001),
        ("tether-store", 0.001),
        ("tether-operators", 0.001),
        ("tether-operators", 0.0),
    ],
)
def test_the_answer_is_right(
    slow_spark: SparkSession, tmp_path: Path, contender: str, latency: float
) -> None:
    scenario = Scenario(
        name="tiny",
        algorithm="keyed-sum",
        contenders=[contender],
        rows=2_000,
        keys=500,
        columns=2,
        epochs=2,
        warm_up=1,
        store_latency=latency,
    )
    measured = find(scenario.algorithm, contender)(Course(scenario, tmp_path, lambda: slow_spark))
    assert measured.answer_checked
    assert len(measured.epoch_ms) == 2


TINY = {
    "heavy-hitters": {"rows": 2_000, "keys": 300, "skew": 1.1},
    "top-k": {"rows": 2_000, "keys": 200, "skew": 1.1, "k": 10, "panes": 2},
    "join": {"rows": 1_000, "keys": 200, "skew": 0.6},
    "logistic-regression": {"rows": 4_000, "columns": 5},
}


def peer(algorithm: str, contender: str) -> ParameterSet:
    """Not ours: every benchmark that it takes part in checks its answers, too."""
    return pytest.param(algorithm, contender, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("algorithm", "contender"),
    [
        ("heavy-hitters", "tether-operators"),
        peer("heavy-hitters", "spark-default"),
        ("top-k", "tether-operators"),
        ("top-k", "tether-store"),
        peer("top-k", "spark-default"),
        peer("top-k", "spark-sketch"),
        ("join", "tether-operators"),
        ("join", "tether-sample"),
        ("join", "tether-store"),
        peer("join", "spark-rocksdb"),
        ("logistic-regression", "tether-operators"),
        peer("logistic-regression", "spark-foreach-batch"),
        peer("logistic-regression", "spark-pandas-state"),
    ],
)
def test_every_algorithm_is_answered_right(
    slow_spark: SparkSession, tmp_path: Path, algorithm: str, contender: str
) -> None:
    scenario = Scenario(
        name="tiny",
        algorithm=algorithm,
        contenders=[contender],
        epochs=2,
        warm_up=2,
        **TINY[algorithm],
    )
    measured = find(algorithm, contender)(Course(scenario, tmp_path, lambda: slow_spark))
    assert measured.answer_checked, measured.detail
    assert len(measured.epoch_ms) == 2
