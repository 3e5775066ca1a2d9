"""A small stream's answer at the driver: the newest row of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LatestPerKey:
    """A sink that keeps the newest values of every key that an aggregate emits as changed.

    For answers that fit into the driver's memory: the commands' displays, the demo, the tests.

    Args:
        key: Names of the key columns.
    """

    def __init__(self, key: list[str]) -> None:
        self._key = key
        self._epochs: dict[int, pa.Table] = {}

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Take an epoch's changed rows; an epoch that is run again replaces its first run."""
        self._epochs[epoch] = rows.toArrow()
        if len(self._epochs) > 64:
            self._epochs = {epoch: self.table()}

    def table(self) -> pa.Table:
        """The newest row of each key."""
        if not self._epochs:
            return pa.table({name: [] for name in self._key})
        rows = pa.concat_tables([self._epochs[epoch] for epoch in sorted(self._epochs)])
        values = [name for name in rows.schema.names if name not in self._key]
        if rows.num_rows == 0:
            return rows
        last = rows.group_by(self._key, use_threads=False).aggregate(
            [(name, "last") for name in values]
        )
        return last.select(self._key + [f"{name}_last" for name in values]).rename_columns(
            self._key + values
        )
