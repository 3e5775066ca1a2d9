"""Without failures, Tether's store gives what Spark's own gives, batch for batch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.sql.queries import KINDS, Batches, Run, write_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def some_batches(seed: int, *, batches: int = 4, rows: int = 25) -> Batches:
    """Times move on with jitter, so some rows are late, some windows close."""
    rng = random.Random(seed)
    return [
        [
            (max(0, 20 * batch + rng.randint(-25, 20)), rng.randint(0, 6), rng.randint(0, 9))
            for _ in range(rows)
        ]
        for batch in range(batches)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_query_gives_what_spark_gives(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    batches = some_batches(len(kind))
    for side in ("spark", "tether"):
        write_batches(tmp_path / side, batches)
    theirs = Run(spark, kind, tmp_path / "spark").go()
    ours = Run(spark, kind, tmp_path / "tether").go(40)
    assert ours.output == theirs.output
    assert sum(map(len, ours.output.values())) > 0
    assert all(
        d <= t
        for d, t in zip(
            ours.metric("tetherDivergence"), ours.metric("tetherThreshold"), strict=True
        )
    )
