"""Rows of a source that gives them only once, made durable before anybody processes them.

Where no more than L items may be lost, the rows of an epoch that did not commit must come again. A
source that cannot give them again gets this log, in the checkpoint directory: an epoch that is run
again takes its rows from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fsspec

from tether.core.ids import Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DONE = "_SUCCESS"
"""Spark's own mark that all of a directory has been written."""


class SourceLog:
    """The rows of the newest epochs.

    Args:
        checkpoint: Spark's checkpoint directory.
    """

    def __init__(self, checkpoint: str) -> None:
        self._url = f"{checkpoint}/tether/source"
        self._fs, self._root = fsspec.core.url_to_fs(self._url)

    def kept(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        """The rows of an epoch, durable; those of its first run where it is run again."""
        if not self._fs.exists(f"{self._root}/{epoch}/{_DONE}"):
            rows.write.mode("overwrite").parquet(f"{self._url}/{epoch}")
        # The one before is committed, for this one has begun; it stays, as Spark keeps its own.
        if self._fs.exists(f"{self._root}/{epoch - 2}"):
            self._fs.rm(f"{self._root}/{epoch - 2}", recursive=True)
        return rows.sparkSession.read.schema(rows.schema).parquet(f"{self._url}/{epoch}")
