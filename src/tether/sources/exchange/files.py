"""Rows of an exchange as Parquet files: written by one task each, read back only if they are whole."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tether.backup.patience import patiently
from tether.core.errors import BackupUnreadableError, BadValueError
from tether.sources.exchange.entries import DataFile
from tether.sources.exchange.log import DATA, ROW_HASH, TUPLE_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.sources.exchange.folder import Folder
    from tether.sources.exchange.view import Wanted

ROWS_IN_FILE, ROWS_IN_GROUP = 1_000_000, 65_536


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, and what is known of its rows."""

    file: DataFile
    digest: int
    late: int


def write_files(
    folder: Folder,
    batches: Iterable[pa.RecordBatch],
    *,
    epoch: int,
    task: int,
    floor: int | None,
    keep_hash: bool,
) -> Iterator[Written]:
    """Write the rows of one task, durable on return of each file.

    Args:
        folder: The exchange's.
        batches: Rows, with their tuple time (64-bit integers) and their hash.
        epoch: Their epoch, for the files' names.
        task: Number of the task, the same when the epoch is run again.
        floor: The boundary that was told before: older rows get it as their tuple time.
        keep_hash: Whether the hash goes into the files.
    """
    for number, rows in enumerate(_chunks(batches)):
        prefix = f"{DATA}/{epoch:012}-{task:05}-{number:04}"
        yield _write(folder, prefix, rows, floor, keep_hash=keep_hash)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """All rows, in tables of a size that one task can sort in memory."""
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        parts.append(batch)
        if sum(part.num_rows for part in parts) >= ROWS_IN_FILE:
            yield pa.Table.from_batches(parts)
            parts = []
    if any(part.num_rows for part in parts):
        yield pa.Table.from_batches(parts)


def _write(
    folder: Folder, prefix: str, rows: pa.Table, floor: int | None, *, keep_hash: bool
) -> Written:
    if rows[TUPLE_TIME].null_count:
        raise BadValueError(
            f"{rows[TUPLE_TIME].null_count} rows have no tuple time.",
            why="Their time is null, so they have no place among the other rows.",
            do="Filter them out, or give them a time, before they are written to the exchange.",
        )
    times = rows[TUPLE_TIME].to_numpy()
    late = 0
    if floor is not None and (late := int((times < floor).sum())):
        times = np.maximum(times, floor)
        at = rows.schema.get_field_index(TUPLE_TIME)
        rows = rows.set_column(at, TUPLE_TIME, pa.array(times))
    hashes = rows[ROW_HASH].to_numpy()
    # By hash too: a second run gives rows of one time in another order, and must give the same file.
    rows = rows.take(pa.array(np.lexsort((hashes, times))))
    if not keep_hash:
        rows = rows.drop_columns([ROW_HASH])
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="lz4",
        row_group_size=ROWS_IN_GROUP,
        # Numbers are as short as an index into a dictionary, and read faster.
        use_dictionary=[f.name for f in rows.schema if not pa.types.is_primitive(f.type)],
    )
    data = sink.getvalue().to_pybytes()
    name = f"{prefix}-{uuid.uuid4().hex}.parquet"
    patiently(folder, lambda: folder.create(name, data))
    with np.errstate(over="ignore"):
        digest = int(hashes.sum(dtype=np.int64))
    file = DataFile(
        name=name,
        rows=rows.num_rows,
        size=len(data),
        checksum=crc32(data),
        low=int(times.min()),
        high=int(times.max()),
    )
    return Written(file=file, digest=digest, late=late)


def read_file(folder: Folder, wanted: Wanted, columns: list[str]) -> tuple[pa.Table, np.ndarray]:
    """The wanted rows of a file, in its order, and their numbers within the epoch.

    Raises:
        BackupUnreadableError: the file is gone, or is not as it was written.
    """
    file = wanted.file
    try:
        data = folder.read(file.name)
    except FileNotFoundError:
        data = b""
    if len(data) != file.size or crc32(data) != file.checksum:
        raise BackupUnreadableError(
            f"{file.name} of the exchange {folder.url} cannot be read.",
            why=f"It should have {file.size} bytes and has {len(data)}, or they are not those that were "
            "written."
            if data
            else "It is gone.",
            do="Restore it from a copy.",
        )
    source = pq.ParquetFile(pa.BufferReader(data))
    groups, first = [], []
    at = source.schema_arrow.get_field_index(TUPLE_TIME)
    row = wanted.row
    for number in range(source.num_row_groups):
        group = source.metadata.row_group(number)
        found = group.column(at).statistics
        if found.max >= wanted.first and found.min < wanted.end:
            groups.append(number)
            first.append(row)
        row += group.num_rows
    rows = source.read_row_groups(groups, columns=[*columns, TUPLE_TIME], use_threads=False)
    # Files are ordered by time, so the rows that are asked for are one piece.
    times = rows[TUPLE_TIME].to_numpy()
    begin = int(np.searchsorted(times, wanted.first))
    end = int(np.searchsorted(times, wanted.end))
    start = (first[0] if first else row) + begin
    return rows.slice(begin, end - begin), np.arange(start, start + end - begin)
