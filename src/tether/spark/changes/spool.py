"""Tentative rows that were given, kept until the stable ones come: only then can they be taken back.

In Spark's checkpoint directory, as Parquet. The rows that a sink gets are read from here, so what is
taken back later is exactly what was given, even if an operator computes other rows when the epoch is run
again.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DONE = "_SUCCESS"
"""Spark's own mark that all of a directory has been written."""


class TentativeSpool:
    """The tentative rows of one sink.

    Args:
        checkpoint: Spark's checkpoint directory.
        number: The sink's among those of its query.
    """

    def __init__(self, checkpoint: str, number: int) -> None:
        self._url = f"{checkpoint}/tether/tentative/{number}"

    def keep(self, rows: DataFrame, epoch: int, name: str = "given") -> DataFrame:
        """Rows of an epoch, durable; those of its first run where it is run again."""
        if not self._there(epoch, name):
            rows.write.mode("overwrite").parquet(f"{self._url}/{epoch}/{name}")
        return rows.sparkSession.read.schema(rows.schema).parquet(f"{self._url}/{epoch}/{name}")

    def keep_table(
        self, table: pa.Table, like: DataFrame, epoch: int, name: str = "given"
    ) -> DataFrame:
        """The same for rows in the driver, where they stay for current readers."""
        files, root = fsspec.core.url_to_fs(self._url)
        place = f"{root}/{epoch}/{name}"
        if files.exists(place):  # left incomplete by a driver that died
            files.rm(place, recursive=True)
        files.makedirs(place)
        with files.open(f"{place}/part-0.parquet", "wb") as file:
            pq.write_table(table, file)
        files.pipe_file(f"{place}/{_DONE}", b"")
        return like.sparkSession.createDataFrame(table, like.schema)

    def table(self, like: pa.Schema, epoch: int, name: str = "given") -> pa.Table:
        """Rows of an epoch that are kept, read without Spark; for few.

        Args:
            like: Their columns.
            epoch: Their epoch.
            name: What is kept.
        """
        files, root = fsspec.core.url_to_fs(self._url)
        parts = sorted(files.glob(f"{root}/{epoch}/{name}/*.parquet"))
        read = [
            pq.read_table(part, filesystem=files, coerce_int96_timestamp_unit="us")
            .select(like.names)
            .cast(like)
            for part in parts
        ]
        return pa.concat_tables(read) if read else like.empty_table()

    def has(self, epoch: int, name: str = "given") -> bool:
        """Whether rows of an epoch are kept."""
        return self._there(epoch, name)

    def given(self, session: SparkSession, like: DataFrame, epoch: int) -> DataFrame | None:
        """The tentative rows of an epoch that were given, if any were.

        Args:
            session: To read them with.
            like: Rows of the same columns.
            epoch: Their epoch.
        """
        if not self._there(epoch, "given"):
            return None
        return session.read.schema(like.schema).parquet(f"{self._url}/{epoch}/given")

    def rows(self, epoch: int, name: str = "given") -> int:
        """How many rows of an epoch are kept; by default tentative ones that were given."""
        files, root = fsspec.core.url_to_fs(self._url)
        if not self._there(epoch, name):
            return 0
        parts = files.glob(f"{root}/{epoch}/{name}/*.parquet")
        return sum(int(pq.read_metadata(part, filesystem=files).num_rows) for part in parts)

    def given_at(self, epoch: int) -> float:
        """Unix seconds, when they were; now, where the file system does not say."""
        files, root = fsspec.core.url_to_fs(self._url)
        with contextlib.suppress(NotImplementedError, OSError):
            return float(files.modified(f"{root}/{epoch}/given/{_DONE}").timestamp())
        return time.time()

    def note(self, epoch: int, first: int, end: int) -> None:
        """Note the buckets that a tentative epoch is about to give rows of: from, and up to."""
        files, root = fsspec.core.url_to_fs(self._url)
        files.makedirs(f"{root}/{epoch}", exist_ok=True)
        files.pipe_file(f"{root}/{epoch}/buckets.json", json.dumps([first, end]).encode())

    def noted(self) -> dict[int, tuple[int, int]]:
        """The buckets of each tentative epoch whose rows are kept."""
        files, root = fsspec.core.url_to_fs(self._url)
        found = {}
        for epoch in self.outstanding():
            try:
                first, end = json.loads(files.cat_file(f"{root}/{epoch}/buckets.json"))
            except (FileNotFoundError, ValueError):
                continue  # of an epoch that corrects its own rows, or whose rows were not given yet
            found[epoch] = (int(first), int(end))
        return found

    def outstanding(self) -> list[int]:
        """Epochs of which tentative rows were given and no stable ones yet, oldest first."""
        files, root = fsspec.core.url_to_fs(self._url)
        if not files.exists(root):
            return []
        files.invalidate_cache(root)
        names = [path.rstrip("/").rsplit("/", 1)[-1] for path in files.ls(root, detail=False)]
        return sorted(int(name) for name in names if name.isdigit())

    def forget(self, epoch: int) -> None:
        """The stable rows of an epoch have been given, and that is durable."""
        files, root = fsspec.core.url_to_fs(self._url)
        if files.exists(f"{root}/{epoch}"):
            files.rm(f"{root}/{epoch}", recursive=True)

    def _there(self, epoch: int, name: str) -> bool:
        files, root = fsspec.core.url_to_fs(self._url)
        return bool(files.exists(f"{root}/{epoch}/{name}/{_DONE}"))
