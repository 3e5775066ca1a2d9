"""What a new user stumbled over: each is mended, or answered at once by a clear error."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.core.errors import BadValueError, QueryRefusedError, TetherError
from tether.spark.logs.ownership import claim_checkpoint
from tether.testing.epochs import read_epochs, write_epochs

SCHEMA = "page string, bytes double"


def test_a_plain_querys_checkpoint_is_refused_at_once(spark, tmp_path):
    write_epochs(tmp_path / "in", [pa.table({"page": ["a"], "bytes": [1.0]})])
    rows = read_epochs(spark, tmp_path / "in", SCHEMA)
    where = str(tmp_path / "checkpoint")
    plain = rows.writeStream.format("noop").option("checkpointLocation", where)
    plain.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(QueryRefusedError, match="not that of a Tether query"):
        tether.stream(rows).apply(KeyedAggregate(), key="page").start(checkpoint=where)
    # One from before there was a mark is known by its backup.
    claim_checkpoint(where, known=True)
    claim_checkpoint(where, known=False)


def test_values_that_are_no_numbers_are_counted_or_kept_aside(spark, tmp_path):
    table = pa.table(
        {"page": ["a", "a", "a", "b", "b"], "bytes": [1.0, math.nan, 2.0, math.inf, None]}
    )
    write_epochs(tmp_path / "in", [table, table])
    rows = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    good, aside = rows.set_aside("bytes", nulls=True)
    skipping = KeyedAggregate(sums=["bytes"], not_numbers="skip", weights={"skipped(bytes)": 0.0})
    skipped, summed, kept = {}, {}, []
    one = rows.apply(skipping, key="page", parallelism=2, name="skipping")
    two = good.apply(KeyedAggregate(sums=["bytes"]), key="page", parallelism=2)
    one.start(
        lambda df, _: skipped.update({row.page: tuple(row)[1:] for row in df.collect()}),
        also=[
            (two, lambda df, _: summed.update({row.page: tuple(row)[1:] for row in df.collect()})),
            (aside, lambda df, _: kept.extend(df.collect())),
        ],
        trigger={"availableNow": True},
    ).awaitTermination()
    assert skipped == {"a": (6, 6.0, 2), "b": (4, None, 2)}
    assert summed == {"a": (4, 6.0)}
    assert sorted(row.page for row in kept) == ["a", "a", "b", "b", "b", "b"]
    with pytest.raises(BadValueError, match="not a column of numbers"):
        rows.set_aside("page")[0].apply(KeyedAggregate(), key="page").start()


def test_an_error_of_a_source_names_its_cause(spark, tmp_path):
    write_epochs(tmp_path / "in", [pa.table({"page": ["a"], "bytes": ["x"]})])
    rows = tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
    query = rows.apply(KeyedAggregate(sums=["bytes"]), key="page", parallelism=2).start(
        trigger={"availableNow": True}
    )
    with pytest.raises(TetherError, match=r"Parquet column \[bytes\]") as caught:
        query.awaitTermination()
    assert "collectToPython" not in str(caught.value)
    assert "driver's log" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_connect_client_is_refused_before_anything_of_it_is_asked():
    class Rows:
        sparkSession = object()  # noqa: N815 - Spark's name; a client's session has no JVM

    with pytest.raises(QueryRefusedError, match="classic Spark session"):
        tether.stream(Rows())


@pytest.mark.long
def test_workers_run_the_drivers_python_where_none_was_chosen(tmp_path):
    """The README's way: the Python of an environment that is not activated."""
    program = tmp_path / "program.py"
    program.write_text(
        """
import pathlib, sys
import pyarrow as pa
import tether
from pyspark.sql import SparkSession
from tether.algorithms.aggregate import KeyedAggregate
spark = SparkSession.builder.master("local[1,4]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.createDataFrame([("a", 1), ("a", 2)], "page string, bytes long")
print(tether.stream(rows).apply(KeyedAggregate(), key="page", parallelism=1).to_df().collect())
""",
        encoding="utf-8",
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK")}
    environment["PATH"] = os.pathsep.join(
        part
        for part in environment["PATH"].split(os.pathsep)
        if Path(sys.prefix) not in Path(part).parents
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Row(page='a', count=2)" in done.stdout, done.stderr[-2000:]
