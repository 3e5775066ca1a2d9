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
        changed = rows.toArrow()
        self._epochs.pop(epoch, None)  # what came last is the newest, also after a rewind
        self._epochs[epoch] = changed
        if len(self._epochs) > 64:
            self._epochs = {epoch: self.table()}

    def table(self) -> pa.Table:
        """The newest row of each key."""
        if not self._epochs:
            return pa.table({name: [] for name in self._key})
        rows = pa.concat_tables(list(self._epochs.values()))
        values = [name for name in rows.schema.names if name not in self._key]
        if rows.num_rows == 0:
            return rows
        last = rows.group_by(self._key, use_threads=False).aggregate(
            [(name, "last") for name in values]
        )
        return last.select(self._key + [f"{name}_last" for name in values]).rename_columns(
            self._key + values
        )
