"""The rows of an epoch, in the one order there is: tuple time, input, sequence within the input."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from tether.backup.patience import patiently
from tether.sources.exchange.files import read_file
from tether.sources.exchange.gateway_rows import read_items
from tether.sources.exchange.log import ROW_HASH, TUPLE_TIME
from tether.sources.exchange.view import Wanted, rows_between
from tether.sources.sunion.columns import BUCKET, ENTRY, INPUT, ROW, STABILITY, STABLE_BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tether.sources.exchange.entries import Entry
    from tether.sources.sunion.looking import Spec
    from tether.sources.sunion.offsets import Offset

LOWEST, HIGHEST = -(2**63), 2**63 - 1
BATCH_ROWS = 65_536


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one task reads: files of each input, in the order of the exchange."""

    wanted: tuple[tuple[Wanted, ...], ...]
    replicas: tuple[int, ...]
    kind: str
    stable_before: int


def pieces(spec: Spec, end: Offset, entries: Sequence[Sequence[Entry]]) -> list[Piece]:
    """Cut an epoch into tasks by tuple time; what is in each follows from the offset alone.

    Args:
        spec: The subscription.
        end: Where the epoch ends.
        entries: For each input those that it looks at.
    """
    first = max(LOWEST, end.first * end.bucket)
    last = min(HIGHEST, end.end * end.bucket)
    wanted = [
        tuple(rows_between(found, first, last, tentative=end.kind == "tentative"))
        for found in entries
    ]
    all_files = [each.file for of_one in wanted for each in of_one]
    if not all_files:
        return []
    low = max(first, min(file.low for file in all_files))
    high = min(last, max(file.high for file in all_files) + 1)
    count = max(1, min(spec.partitions, sum(file.rows for file in all_files) // 10_000, high - low))
    cuts = [low + (high - low) * number // count for number in range(count)] + [high]
    replicas = tuple(each.replica for each in end.taken)
    found = []
    for begin, stop in itertools.pairwise(cuts):
        inside = tuple(
            tuple(cut for each in of_one if (cut := _within(each, begin, stop)) is not None)
            for of_one in wanted
        )
        if any(inside):
            found.append(
                Piece(
                    wanted=inside,
                    replicas=replicas,
                    kind=end.kind,
                    stable_before=max(LOWEST, end.stable_before),
                )
            )
    return found


def _within(wanted: Wanted, begin: int, stop: int) -> Wanted | None:
    first, end = max(wanted.first, begin), min(wanted.end, stop)
    if first >= end or wanted.file.high < first or wanted.file.low >= end:
        return None
    return msgspec.structs.replace(wanted, first=first, end=end)


def read_piece(spec: Spec, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one task.

    Args:
        spec: The subscription.
        piece: Which.
        schema: What Spark expects.
    """
    tables = []
    for number, wanted in enumerate(piece.wanted):
        if wanted:
            folder = spec.inputs[number][piece.replicas[number]].open().folder
            tables.append(_of_input(spec, folder, number, wanted))
    if not tables:
        return
    rows = pa.concat_tables(tables)
    times = rows[TUPLE_TIME].to_numpy()
    if not bool((times[1:] >= times[:-1]).all()):
        # Stable: rows of one time stay in the order of inputs, and of each input's own sequence. Inputs
        # are runs that are sorted already, and that is what numpy's stable sort is quick with.
        rows = rows.take(pa.array(np.argsort(times, kind="stable")))
    rows = _with_kind(spec, piece, rows)
    rows = rows.select(schema.names).cast(schema)
    yield from rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _of_input(spec: Spec, folder: object, number: int, wanted: tuple[Wanted, ...]) -> pa.Table:
    columns = [*spec.columns, *([ROW_HASH] if spec.replicated[number] else [])]
    tables, gateway = [], spec.gateway(number)
    for each in wanted:
        if gateway is None:
            # An epoch that was cut consists of these rows, and of no others.
            rows, numbers = patiently(folder, partial(read_file, folder, each, columns))  # type: ignore[arg-type]
        else:
            rows, numbers = read_items(gateway, each, columns)
        if spec.places:
            rows = rows.append_column(INPUT, pa.array(np.full(len(rows), number, np.int32)))
            rows = rows.append_column(ENTRY, pa.array(np.full(len(rows), each.entry, np.int64)))
            rows = rows.append_column(ROW, pa.array(numbers))
        tables.append(rows)
    rows = pa.concat_tables(tables)
    if spec.replicated[number]:
        # Replicas may have the same rows in other entries; so equal times are ordered by content.
        order = np.lexsort((rows[ROW_HASH].to_numpy(), rows[TUPLE_TIME].to_numpy()))
        rows = rows.take(pa.array(order)).drop_columns([ROW_HASH])
    return rows


def _with_kind(spec: Spec, piece: Piece, rows: pa.Table) -> pa.Table:
    if not spec.kinds:
        return rows
    times = rows[TUPLE_TIME].to_numpy()
    kinds = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int8), [piece.kind])
    rows = rows.append_column(STABILITY, kinds.cast(pa.string()))
    rows = rows.append_column(BUCKET, pa.array(times // spec.bucket * spec.bucket))
    before = np.full(len(rows), piece.stable_before, np.int64)
    return rows.append_column(STABLE_BEFORE, pa.array(before))
