"""Reading a change-feed directory: three views, in a batch or as a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tether.core.errors import BadValueError
from tether.spark.changes.columns import AFTER, CHANGE_TYPE, DELETE, INSERT, STABILITY
from tether.spark.changes.feed_log import Commit, FeedLog, live
from tether.spark.changes.views import View, check_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_NAME = "tether_changes"


def read_changes(
    spark: SparkSession, path: str, view: View = "newest", *, streaming: bool = False
) -> DataFrame:
    """The changes that ``tether.to_changes`` wrote.

    Every row has the columns ``_change_type``, ``_commit_version``, ``_stability``, ``_epoch`` and
    ``_fidelity`` after its own.

    Args:
        spark: The session.
        path: The directory.
        view: "stable": final rows only. "newest": for each epoch its stable rows if they are there,
            else the tentative ones. "history": every change, in the order of ``_commit_version``.
        streaming: A stream of what is there and what will come. Of "newest" a stream gives every
            change, as of "history": a stream cannot take rows back, but it can say that they are
            to be.

    Raises:
        BadValueError: There are no changes there, or the view is not known.
    """
    check_view(view)
    log = FeedLog(path)
    told = log.schema()
    if told is None:
        raise BadValueError(
            f"There are no changes in {path}.",
            why="Nothing was written there with tether.to_changes yet.",
            do="Wait for the query's first epoch, or check the path.",
        )
    schema = StructType.fromJson(_json(told))
    if streaming:
        spark.dataSource.register(_ChangesSource)
        reader = spark.readStream.format(_NAME).option("path", path).option("view", view)
        return reader.option("schema", told).load()
    if view == "history":
        return _history(spark, log, schema)
    commits = live(log.commits())
    final = {one.epoch for one in commits if one.kind == "stable"}
    final |= {epoch for one in commits for epoch in one.replaces}
    wanted = [
        one
        for one in commits
        if one.kind == "stable" or (view == "newest" and one.epoch not in final)
    ]
    rows = _read(spark, log, wanted, schema)
    return rows.where(F.col(CHANGE_TYPE).isin(INSERT, AFTER))


def _read(
    spark: SparkSession, log: FeedLog, commits: list[Commit], schema: StructType
) -> DataFrame:
    files = [f"{log.path}/{one.folder}/{name}" for one in commits for name in one.files]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*files)


def _history(spark: SparkSession, log: FeedLog, schema: StructType) -> DataFrame:
    commits = log.commits()
    rows = _read(spark, log, [one for one in commits if one.folder], schema)
    for at, commit in enumerate(commits):
        if commit.kind == "take-back":
            gone = [one for one in live(commits[:at]) if one.epoch >= commit.epoch]
            back = _read(spark, log, gone, schema).where(F.col(CHANGE_TYPE).isin(INSERT, AFTER))
            rows = rows.unionByName(back.withColumn(CHANGE_TYPE, F.lit(DELETE)))
    return rows


def _json(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


class _ChangesSource(DataSource):  # type: ignore[misc]  # untyped to us
    """The feed as a source of Spark's."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return _NAME

    def schema(self) -> StructType:
        """The schema with which it was written."""
        return StructType.fromJson(_json(self.options["schema"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Reads the feed commit by commit."""
        return _ChangesReader(self.options["path"], self.options["view"], schema)


class _File(InputPartition):  # type: ignore[misc]
    """A file of a commit, and whether its rows are to be taken back."""

    def __init__(self, path: str, *, back: bool) -> None:
        self.path, self.back = path, back


class _ChangesReader(DataSourceStreamReader):  # type: ignore[misc]
    """An offset is the version of the last commit that was read."""

    def __init__(self, path: str, view: str, schema: StructType) -> None:
        self._path, self._view, self._schema = path, view, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first commit."""
        return {"version": -1}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802, ARG002
        """The newest commit."""
        return {"version": FeedLog(self._path).last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The files of the commits between, in their order."""
        log = FeedLog(self._path)
        commits = log.commits(upto=end["version"])
        found: list[InputPartition] = []
        for at, commit in enumerate(commits):
            if commit.version <= start["version"]:
                continue
            gone = []
            if commit.kind == "take-back" and self._view != "stable":
                gone = [one for one in live(commits[:at]) if one.epoch >= commit.epoch]
            found += [
                _File(_place(log, one, name), back=True) for one in gone for name in one.files
            ]
            if commit.kind == "stable" or self._view != "stable":
                found += [_File(_place(log, commit, name), back=False) for name in commit.files]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file, as the view has them."""
        import fsspec  # noqa: PLC0415 - in the Python worker that reads
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        assert isinstance(partition, _File)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with fsspec.open(partition.path, "rb") as file:
            for batch in pq.ParquetFile(file).iter_batches():
                table = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
                kept = pc.is_in(table[CHANGE_TYPE], pa.array([INSERT, AFTER]))
                if self._view == "stable":
                    table = table.filter(pc.and_(kept, pc.equal(table[STABILITY], "stable")))
                elif partition.back:
                    table = table.filter(kept)
                    deleted = pa.array([DELETE] * table.num_rows, pa.string())
                    place = table.schema.get_field_index(CHANGE_TYPE)
                    table = table.set_column(place, wanted.field(CHANGE_TYPE), deleted)
                yield from table.to_batches()


def _place(log: FeedLog, commit: Commit, name: str) -> str:
    return f"{log.path}/{commit.folder}/{name}"
