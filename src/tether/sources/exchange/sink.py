"""A query writes its rows to an exchange."""

from __future__ import annotations

import threading
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.sources.exchange.entries import DataFile
from tether.sources.exchange.files import write_files
from tether.sources.exchange.log import ROW_HASH, TUPLE_TIME, About, ExchangeAddress
from tether.sources.exchange.writer import ExchangeWriter, Rows
from tether.sources.sunion.columns import SUBSCRIBED
from tether.sources.sunion.offsets import told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame

    from tether.sources.exchange.entries import Kind

_BOUNDARY = "_boundary"
_REPORT = (
    "name string, rows long, size long, checksum long, low long, high long, digest long, late long, "
    "boundary long"
)
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


class ExchangeSink:
    """See :func:`to_exchange`."""

    def __init__(
        self,
        path: str,
        *,
        time: str | None,
        disorder: float,
        boundary: str | None,
        replicated: bool,
        subscription: str | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self._address = ExchangeAddress(url=_absolute(path), options=dict(options or {}))
        self._log = self._address.open()
        self._time, self._expression, self._replicated = time, boundary, replicated
        self._disorder = amount("disorder", disorder, unit="seconds", zero="none", infinite=None)
        self._subscription = subscription
        self.boundaries: Callable[[int], int | None] | None = None
        """Gives, after an epoch, the tuple time before which no row will come; without it the rows
        tell."""
        self._writer: ExchangeWriter | None = None
        self._taken_back: int | None = None
        self._busy = threading.Lock()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Write an epoch, unless it is there."""
        with self._busy:
            writer = self._writer or self._open(rows)
            kind: Kind = "stable"
            told: int | None = None
            failing = False
            if self._subscription is not None:
                kind, told, failing = told_by(self._subscription, epoch)
                told -= self._units(rows)
            found = self._write(rows, epoch, writer.boundary)
            newest = max((each.high for each in found.files), default=None)
            if self.boundaries is not None:
                told = self.boundaries(epoch)
            elif told is None and self._expression is None and newest is not None:
                told = newest - self._units(rows)
            boundary = max((x for x in (told, found.boundary) if x is not None), default=None)
            writer.add(
                epoch,
                kind,
                Rows(
                    files=found.files,
                    digest=found.digest,
                    late=found.late,
                    boundary=boundary,
                    failing=failing,
                ),
            )

    def follow_subscription(self, checkpoint: str) -> None:
        """Take kinds and boundaries over from the subscription of the query that writes here."""
        self._subscription = checkpoint

    def take_back(self, epoch: int) -> None:
        """This epoch and all after it will be given again: their tentative rows are withdrawn."""
        with self._busy:
            if (
                self._writer is None
            ):  # a driver that has just started: it knows its query after an epoch
                self._taken_back = epoch
            else:
                self._writer.take_back(epoch)

    def heartbeat(self, boundary: int) -> None:
        """Say that nothing older will come, unless an epoch is being written just now."""
        # Its rows were compared with the boundary that was known when it began.
        if self._writer is not None and self._busy.acquire(blocking=False):
            try:
                self._writer.heartbeat(boundary)
            finally:
                self._busy.release()

    def create(self, rows: DataFrame) -> None:
        """Make the exchange, so that readers know its columns before the first epoch."""
        columns = T.StructType([rows.schema[name] for name in _columns(rows)])
        unit = "integer" if self._by_integers(rows) else "microseconds"
        self._log.create(
            About(row_schema=columns.json(), unit=unit, replicated=self._replicated)  # type: ignore[arg-type]
        )

    # ---- inside --------------------------------------------------------------------------------------

    def _open(self, rows: DataFrame) -> ExchangeWriter:
        self.create(rows)
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        self._writer = ExchangeWriter(self._log, query or "batch")
        if self._taken_back is not None:
            self._writer.take_back(self._taken_back)
        return self._writer

    def _write(self, rows: DataFrame, epoch: int, floor: int | None) -> Rows:
        columns = _columns(rows)
        told = F.lit(None) if self._expression is None else F.expr(self._expression)
        if self._expression is not None and not self._integer(rows.select(told)):
            told = F.unix_micros(told)
        numbered = rows.select(
            *columns,
            self._tuple_time(rows).alias(TUPLE_TIME),
            F.xxhash64(*columns).alias(ROW_HASH),
            told.cast("long").alias(_BOUNDARY),
        )
        task = _task(self._address, epoch, floor, keep_hash=self._replicated)
        found = numbered.mapInArrow(task, _REPORT).collect()
        # In the order of tasks, so that a row has the same number whenever the epoch is run.
        found.sort(key=lambda row: row["name"])
        digest = sum(row["digest"] for row in found) & (2**63 - 1)
        told_rows = [row["boundary"] for row in found if row["boundary"] is not None]
        return Rows(
            files=tuple(
                DataFile(**{name: row[name] for name in DataFile.__struct_fields__})
                for row in found
            ),
            digest=digest,
            late=sum(row["late"] for row in found),
            boundary=max(told_rows, default=None),
        )

    def _tuple_time(self, rows: DataFrame) -> Column:
        if self._time is None:
            return F.lit(clock.time_ns() // 1_000)
        column = F.col(self._time)
        return column.cast("long") if self._by_integers(rows) else F.unix_micros(column)

    def _by_integers(self, rows: DataFrame) -> bool:
        return self._time is not None and self._integer(rows.select(self._time))

    def _integer(self, one: DataFrame) -> bool:
        kind = one.schema[0].dataType
        if isinstance(kind, _INTEGERS):
            return True
        if isinstance(kind, T.TimestampType):
            return False
        raise BadValueError(
            f"The column {one.columns[0]!r} cannot be a tuple time or a boundary.",
            why=f"It is of type {kind.simpleString()}.",
            do="Use a timestamp or a whole number.",
        )

    def _units(self, rows: DataFrame) -> int:
        return int(self._disorder * (1 if self._by_integers(rows) else 1_000_000))


def _task(
    address: ExchangeAddress, epoch: int, floor: int | None, *, keep_hash: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with its rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        newest: list[int] = []

        def plain() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if (found := pc.max(batch[_BOUNDARY]).as_py()) is not None:
                    newest.append(found)
                yield batch.drop_columns([_BOUNDARY])

        for each in write_files(
            address.open().folder, plain(), epoch=epoch, task=task, floor=floor, keep_hash=keep_hash
        ):
            file = each.file
            report = {name: [getattr(file, name)] for name in DataFile.__struct_fields__}
            report |= {
                "digest": [each.digest],
                "late": [each.late],
                "boundary": [max(newest, default=None)],
            }
            schema = pa.schema(
                [(name, pa.string() if name == "name" else pa.int64()) for name in report]
            )
            yield pa.record_batch(report, schema=schema)

    return write


def _columns(rows: DataFrame) -> list[str]:
    """A user's columns; those that tether.subscribe added are not passed on."""
    ours = {TUPLE_TIME, ROW_HASH, _BOUNDARY}
    if taken := ours & set(rows.columns) - set(SUBSCRIBED):
        raise BadValueError(
            f"Rows for an exchange cannot have a column {min(taken)!r}.",
            why="The exchange adds a column of that name.",
            do="Rename it.",
        )
    return [name for name in rows.columns if name not in SUBSCRIBED]


def _absolute(path: str) -> str:
    # Executors have working directories of their own.
    return path if ":" in path else str(Path(path).absolute())


def to_exchange(
    path: str,
    *,
    time: str | None = None,
    disorder: float = 0.0,
    boundary: str | None = None,
    replicated: bool = False,
    subscription: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ExchangeSink:
    """A sink that adds every epoch's rows to an exchange, once.

    It is an output of ``tether.stream(...).start(...)``, and a function for Spark's ``foreachBatch``.

    Guarantee: a row that has become stable is there once and stays, however often its epoch is run.
    What a killed writer had begun is never read.

    Args:
        path: Directory or URL; for this query alone.
        time: Column with the tuple time: a timestamp or a whole number. None: the time at which the
            rows are written.
        disorder: How much older than the newest row before it a row may be: seconds where ``time`` is
            a timestamp, else in the column's own unit. Rows that are older yet keep their columns, and
            get the oldest tuple time that is still allowed. With ``subscription``: how much older than
            the rows that it was made from.
        boundary: SQL expression on the rows: the tuple time below which no later row is; its greatest
            value in an epoch counts.
        replicated: Whether readers may follow several replicas of this exchange. Each row carries its
            hash then, so that rows of one time have the same order in all of them.
        subscription: Checkpoint directory of this query, where its rows come from
            ``tether.subscribe``: kinds and boundaries are taken over.
        options: For the file system of the URL, as fsspec takes them.

    Example:
        >>> import tempfile
        >>> sink = to_exchange(tempfile.mkdtemp() + "/clicks", time="at", disorder=2.0)
        >>> callable(sink)
        True
    """
    return ExchangeSink(
        path,
        time=time,
        disorder=disorder,
        boundary=boundary,
        replicated=replicated,
        subscription=subscription,
        options=options,
    )
