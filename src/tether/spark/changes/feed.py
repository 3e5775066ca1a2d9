"""Output as a directory of changes: stable rows once, tentative ones and their corrections."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from tether.spark.changes.feed_log import FeedLog, live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.spark.changes.columns import Mark


class ChangeFeed:
    """See :func:`to_changes`."""

    takes_tentative = True

    def __init__(self, path: str, key: list[str], options: dict[str, str]) -> None:
        self.key = key
        self._options = options
        self._log = FeedLog(path)
        self._lock = threading.Lock()
        self._swept = False

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Not used: a sink that takes tentative rows is given each row with its mark."""
        raise NotImplementedError("changes come by write_changes, with their mark")

    def write_changes(self, rows: DataFrame, epoch: int, mark: Mark) -> None:
        """Add the changes of an epoch; earlier ones are kept, because they may have been read."""
        with self._lock:
            self._sweep()
            there = live(self._log.commits())
            # Of two outputs one may have had its stable rows when the other's slots were found lost.
            known = {one.kind for one in there if one.epoch == epoch}
            if mark.kind in known or "stable" in known:
                return
            self._log.set_schema(_nullable(rows))
        folder = f"rows-{epoch}-{mark.kind}-{uuid.uuid4().hex[:12]}"
        place = f"{self._log.root}/{folder}"
        rows.write.mode("errorifexists").options(**self._options).parquet(
            f"{self._log.path}/{folder}"
        )
        names = (str(path).rsplit("/", 1)[-1] for path in self._log.files.ls(place, detail=False))
        files = sorted(name for name in names if not name.startswith(("_", ".")))
        with self._lock:
            self._log.append(epoch, mark.kind, folder, files, mark.replaces)

    def take_back(self, epoch: int) -> None:
        """Void all commits of this epoch and later ones: they will be given again."""
        with self._lock:
            if any(one.epoch >= epoch for one in live(self._log.commits())):
                self._log.append(epoch, "take-back")

    def _sweep(self) -> None:
        """Once, before the first write, remove rows that a crash left without a commit."""
        if self._swept:
            return
        self._swept = True
        files, root = self._log.files, self._log.root
        if not files.exists(root):
            return
        named = {one.folder for one in self._log.commits()}
        for path in files.ls(root, detail=False):
            name = str(path).rstrip("/").rsplit("/", 1)[-1]
            if name.startswith("rows-") and name not in named:
                files.rm(str(path), recursive=True)


def _nullable(rows: DataFrame) -> str:
    """The schema as files have it: any column may be null."""
    schema = rows.schema
    for field in schema.fields:
        field.nullable = True
    return str(schema.json())


def to_changes(
    path: str, *, key: str | list[str] | tuple[str, ...] = (), **options: str
) -> ChangeFeed:
    """A sink that keeps all changes of a query's output in a directory, as Parquet.

    It takes tentative rows and their corrections; ``tether.read_changes`` reads it back.

    Guarantee: an epoch's stable rows are in it once, whatever is run again, and a crash at any point
    leaves a directory that can be read. Stable rows are never taken back, unless the query goes back
    to a snapshot as a whole, which it does only under a ``Barrier`` without ``meanwhile``.

    Args:
        path: Directory or URL; for this query alone.
        key: Columns that say which row a correction replaces: a correction is then an update. Without
            them it is deletes and inserts.
        options: Options of Spark's Parquet writer.

    Example:
        >>> to_changes("counts", key="word").takes_tentative
        True
    """
    return ChangeFeed(path, [key] if isinstance(key, str) else list(key), options)
