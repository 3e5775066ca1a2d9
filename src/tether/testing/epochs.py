"""A replayable stream of known epochs: Parquet files, as many for each, read in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EARLIEST = 1_000_000_000
"""Modification time of the first file, Unix seconds: Spark reads the oldest file first."""


def write_epochs(
    directory: Path, tables: Iterable[pa.Table], *, first: int = 0, files: int = 1
) -> int:
    """Write the files of each epoch; give the number of epochs.

    Args:
        directory: Where to write; made if it is not there.
        tables: Rows of each epoch.
        first: Number of the first epoch, to append to an earlier call's.
        files: Files an epoch. Spark reads a small file in one task, so for all cores to read there
            must be one for each.

    Example:
        >>> import pathlib, tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as name:
        ...     write_epochs(pathlib.Path(name), [pa.table({"k": [1]}), pa.table({"k": [2]})])
        2
    """
    directory.mkdir(parents=True, exist_ok=True)
    number = first
    for number, table in enumerate(tables, start=first + 1):
        rows = -(-table.num_rows // files)
        for part in range(files):
            path = directory / f"{number - 1:05}-{part}.parquet"
            partial = path.with_suffix(".writing")
            pq.write_table(table.slice(part * rows, rows), partial)
            os.utime(partial, (EARLIEST + number,) * 2)
            partial.rename(path)  # a stream that is already running must not see half a file
    return number - first


def read_epochs(
    session: SparkSession, directory: Path, schema: str, *, files: int = 1
) -> DataFrame:
    """The files as a stream, ``files`` an epoch; start it with ``availableNow`` for a bounded run."""
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", files)
    return reader.option("pathGlobFilter", "*.parquet").parquet(str(directory))
