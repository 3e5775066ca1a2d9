"""A replayable stream of known epochs: one Parquet file each, read in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

EARLIEST = 1_000_000_000
"""Modification time of the first file, Unix seconds: Spark reads the oldest file first."""

ROW_GROUPS = 8
"""Parts of a file that Spark's tasks can read side by side: with one alone, one core would read all."""


def write_epochs(directory: Path, tables: Iterable[pa.Table], *, first: int = 0) -> int:
    """Write one file an epoch; give the number of files.

    Args:
        directory: Where to write; made if it is not there.
        tables: Rows of each epoch.
        first: Number of the first file, to append to an earlier call's.

    Example:
        >>> import pathlib, tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as name:
        ...     write_epochs(pathlib.Path(name), [pa.table({"k": [1]}), pa.table({"k": [2]})])
        2
    """
    directory.mkdir(parents=True, exist_ok=True)
    number = first
    for number, table in enumerate(tables, start=first + 1):
        path = directory / f"{number - 1:05}.parquet"
        partial = path.with_suffix(".writing")
        pq.write_table(
            table,
            partial,
            row_group_size=-(-table.num_rows // ROW_GROUPS) or None,
            # Numbers are as short as their place in a dictionary, and sooner read.
            use_dictionary=[f.name for f in table.schema if not pa.types.is_primitive(f.type)],
        )
        os.utime(partial, (EARLIEST + number,) * 2)
        partial.rename(path)  # a stream that is already running must not see half a file
    return number - first


def read_epochs(session: SparkSession, directory: Path, schema: str) -> DataFrame:
    """The files as a stream, one an epoch; start it with ``availableNow`` for a bounded run."""
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.option("pathGlobFilter", "*.parquet").parquet(str(directory))
