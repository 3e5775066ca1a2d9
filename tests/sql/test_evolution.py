"""The state of transformWithState may change its schema, and comes back in the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.sql import queries
from tests.sql.processors import Evolving
from tests.sql.queries import Run, write_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
STEPS = [
    ("id int, name string, gone string", (7, "seven", "soon")),
    # A column more, one less, one wider, and another order.
    ("extra int, name string, id bigint", (1, "one", 2**40)),
    ("id bigint, name string, extra int, more string", (3, "three", 4, "yes")),
]
FOUND = [[], [(None, "seven", 7)] * 3, [(2**40, "one", 1, None)] * 3]


@pytest.mark.parametrize(
    "theta", [0.0, *(pytest.param(theta, marks=pytest.mark.long) for theta in (1_000_000.0, None))]
)
def test_rows_come_back_in_the_schema_of_today(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theta: float | None
) -> None:
    run = Run(spark, "evolving", tmp_path)
    spark.conf.set(ENCODING, "avro")
    try:
        for step, (schema, row) in enumerate(STEPS):

            def evolving(
                events: DataFrame, _: Any, schema: str = schema, row: Any = row
            ) -> DataFrame:
                processor = Evolving(schema, row)
                output = "k long, found string"
                return events.groupBy("k").transformWithState(processor, output, "update", "None")

            monkeypatch.setitem(queries.KINDS, "evolving", (evolving, "update"))
            write_batches(tmp_path, [[(0, 1, 1)]] * (step + 1))
            run.go(theta)
    finally:
        spark.conf.unset(ENCODING)
    assert [rows for _, rows in sorted(run.output.items())] == [[(1, repr(f))] for f in FOUND]
