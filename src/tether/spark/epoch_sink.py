"""Output that holds every row once, whatever is run again: a directory for each epoch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import fsspec
from pyspark.sql import functions as F

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tether.spark.sinks import Sink

EPOCH, ROW = "__epoch", "__row"
"""Columns that number output rows: the epoch, and a number that is unique within it."""

_PLACE = re.compile(r"epoch=(?P<epoch>\d+)$")


def numbered(sink: Sink, by: Sequence[str] = ()) -> Sink:
    """The same sink, with every row's epoch and number in two more columns.

    An epoch that is run again gives the same numbers again. So a sink that writes by key
    (``__epoch``, ``__row``) over what is there has every row once, as long as operators compute from
    nothing but their rows and their state.

    A state that was restored after an approximate backup gives its rows in another order. So they are
    numbered in the order of their key, where it is known: a second run's row then has the number that
    the row of this key had in the first.

    Args:
        sink: Gets the numbered rows.
        by: Columns that tell the rows of an epoch apart; those that the rows do not have are left out.

    Raises:
        BadValueError: The sink keeps changes, and so has every row once already.
    """
    if hasattr(sink, "write_changes"):
        raise BadValueError(
            "numbered=True was given with a sink of changes.",
            why="It has every row once without it, and says of each which epoch it speaks of.",
            do="Leave numbered out.",
        )

    def write(rows: DataFrame, epoch: int) -> None:
        known = [F.col(f"`{name}`") for name in by if name in rows.columns]
        if known:
            rows = rows.sortWithinPartitions(*known)
        epoch_column = F.lit(epoch).cast("long").alias(EPOCH)
        sink(rows.select("*", epoch_column, F.monotonically_increasing_id().alias(ROW)), epoch)

    taking_back = getattr(sink, "take_back", None)
    if taking_back is not None:
        write.take_back = taking_back  # type: ignore[attr-defined]
    return write


class EpochSink:
    """See :func:`to_epochs`."""

    def __init__(self, path: str, file_format: str, options: dict[str, str]) -> None:
        self._path, self._format, self._options = path.rstrip("/"), file_format, options
        self._fs, self._root = fsspec.core.url_to_fs(self._path)

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Write an epoch in place of an earlier output of it."""
        # Spark passes over names that begin with an underscore when it reads the directory.
        writing = f"_writing-{epoch}"
        writer = rows.write.format(self._format).mode("overwrite").options(**self._options)
        writer.save(f"{self._path}/{writing}")
        place = f"{self._root}/epoch={epoch}"
        if self._fs.exists(place):
            self._fs.rm(place, recursive=True)
        self._fs.mv(f"{self._root}/{writing}", place, recursive=True)

    def take_back(self, epoch: int) -> None:
        """Remove the output of this epoch and all after it: it will be given again."""
        if not self._fs.exists(self._root):
            return
        for place in self._fs.ls(self._root, detail=False):
            match = _PLACE.search(place.rstrip("/"))
            if match is not None and int(match["epoch"]) >= epoch:
                self._fs.rm(place, recursive=True)


def to_epochs(path: str, *, format: str = "parquet", **options: str) -> EpochSink:  # noqa: A002
    """A sink that keeps each epoch's rows in a directory of its own, and so every row once.

    An epoch that is run again replaces what its first run wrote: written under another name, then
    renamed. When a query goes back to a snapshot, the epochs that will come again are removed first.
    Read it back as one table with ``spark.read.parquet(path)``: Spark adds the column ``epoch``.

    Guarantee: with an exact policy, after any failure that the query has recovered from, the
    directory holds each output row exactly once. Where renaming is atomic (local disks, HDFS) a
    reader never sees half an epoch.

    Args:
        path: Directory or URL; for this query alone.
        format: A file format that Spark can write.
        options: The writer's options.

    Example:
        >>> sink = to_epochs("counts")
        >>> callable(sink)
        True
    """
    return EpochSink(path, format, options)
