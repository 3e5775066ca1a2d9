"""State in a Python function, as Spark's users write it: a call for every key of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

from bench.contenders.spark_stores import ROCKSDB, outputs, stateful
from bench.inputs import columns_of
from tether.algorithms.word_count import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from bench.contenders.course import Course
    from bench.harness import Measurement


class AddUp:
    """Adds the value columns of a key's rows to what its state holds."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def __call__(
        self, key: tuple[Any], batches: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        """One key of an epoch, in ``applyInPandasWithState``."""
        totals = list(state.get) if state.exists else [0] * max(len(self._columns), 1)
        for batch in batches:
            totals = _added(totals, batch, self._columns)
        state.update(tuple(totals))
        yield pd.DataFrame([[key[0], *totals]])


def _added(totals: list[int], batch: pd.DataFrame, columns: list[str]) -> list[int]:
    added = [int(batch[name].sum()) for name in columns] if columns else [len(batch)]
    return [one + other for one, other in zip(totals, added, strict=True)]


class AddingProcessor(StatefulProcessor):
    """The same with a value state of ``transformWithState``."""

    def __init__(self, columns: list[str], schema: str) -> None:
        self._columns, self._schema = columns, schema

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._totals = handle.getValueState("totals", self._schema)

    def handleInputRows(  # noqa: N802 - Spark calls by this name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """One key of an epoch."""
        del timerValues
        found = self._totals.get() if self._totals.exists() else None
        totals = list(found) if found is not None else [0] * max(len(self._columns), 1)
        for batch in rows:
            totals = _added(totals, batch, self._columns)
        self._totals.update(tuple(totals))
        yield pd.DataFrame([[key[0], *totals]])

    def close(self) -> None:
        """Nothing is held outside the state."""


def _keyed(course: Course) -> tuple[DataFrame, list[str], str, str]:
    scenario = course.scenario
    state = ", ".join(f"{name} long" for name in outputs(scenario))
    if scenario.algorithm == "word-count":
        rows = words(course.stream()).withColumnRenamed("word", "k")
        return rows, [], state, f"k string, {state}"
    return course.stream(), columns_of(scenario), state, f"k long, {state}"


def apply_in_pandas(course: Course) -> Measurement:
    """``applyInPandasWithState`` on RocksDB with changelog."""
    with course.settings(ROCKSDB) as session:
        rows, columns, state, output = _keyed(course)
        query = rows.groupBy("k").applyInPandasWithState(
            AddUp(columns), output, state, "update", GroupStateTimeout.NoTimeout
        )

        def stored(kept: DataFrame) -> DataFrame:
            shown = [f"value.groupState.{name} AS {name}" for name in outputs(course.scenario)]
            return kept.selectExpr("key.k AS k", *shown)

        return stateful(course, session, query, stored)


def transform_with_state(course: Course) -> Measurement:
    """``transformWithStateInPandas`` on RocksDB with changelog, which is the only store it takes."""
    with course.settings(ROCKSDB) as session:
        rows, columns, state, output = _keyed(course)
        query = rows.groupBy("k").transformWithStateInPandas(
            AddingProcessor(columns, state), output, "update", "None"
        )

        def stored(kept: DataFrame) -> DataFrame:
            shown = [f"value.{name} AS {name}" for name in outputs(course.scenario)]
            return kept.selectExpr("key.k AS k", *shown)

        return stateful(course, session, query, stored, {"stateVarName": "totals"})
