"""The folded rows of a slot as one value: Spark carries it to the slot's task and never looks inside.

A shuffle of a hundred thousand small rows makes each of them Spark's row, and Arrow's again behind it.
A parcel is a few bytes copied. It says itself how parcels of one slot are folded into one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from tether.backup import packing
from tether.sources.folding.fold import CannotFoldError, Fold, folded, merging
from tether.sources.folding.spark_hash import kind_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

SLOT = "__tether_slot"
"""Column that names the slot that a row, or a parcel, belongs to."""

PARCEL = "__tether_parcel"
"""Column with the parcels themselves."""

SHAPE = pa.schema({SLOT: pa.int32(), PARCEL: pa.binary()})
"""Parcels as rows."""

_FOLD = b"tether.fold"
"""Key of the schema's metadata under which a parcel says how it was folded."""

MOST_ROWS = 1 << 18
"""Rows of a parcel, and of a batch of what comes out of several."""


def packed(rows: pa.Table, fold: Fold, slots: int) -> Iterator[tuple[int, bytes]]:
    """Folded rows in parcels, each with the slot that it goes to.

    Args:
        rows: What ``folded`` gave.
        fold: How they were folded.
        slots: How many slots there are.

    Example:
        >>> from tether.sources.folding.fold import FoldColumn
        >>> fold = Fold(key=("k",), columns=(FoldColumn(name="n", how="count"),))
        >>> rows = folded(pa.table({"k": [1, 1, 2]}), fold)
        >>> parcels = list(packed(rows, fold, 1)) * 2
        >>> [batch.to_pydict() for batch in unpacked(parcel for _, parcel in parcels)]
        [{'k': [1, 2], 'n': [4, 2]}]
    """
    if not rows.num_rows:
        return
    rows = rows.combine_chunks().replace_schema_metadata({_FOLD: msgspec.json.encode(fold)})
    homes = _homes(rows, fold, slots)
    # One sort of small numbers, then each slot's rows lie side by side.
    order = np.argsort(homes, kind="stable")
    ends = np.cumsum(np.bincount(homes, minlength=slots))
    rows = rows.take(pa.array(order)) if slots > 1 else rows
    first = 0
    for slot, end in enumerate(ends.tolist()):
        for begin in range(first, end, MOST_ROWS):
            yield slot, _written(rows.slice(begin, min(MOST_ROWS, end - begin)))
        first = end


def _homes(rows: pa.Table, fold: Fold, slots: int) -> NDArray[np.int64]:
    keys = pa.record_batch([rows[name].combine_chunks() for name in fold.key], names=fold.key)
    types = {field.name: kind_of(field.type) or "" for field in keys.schema}
    homes = slots_of(keys, types, slots)
    if homes is None:
        raise CannotFoldError("Only Spark knows the slots of these keys: they are long, or rare.")
    return homes


def packed_rows(rows: pa.Table, fold: Fold, slots: int) -> Iterator[pa.RecordBatch]:
    """The same parcels as rows, one at a time."""
    for slot, parcel in packed(rows, fold, slots):
        yield pa.record_batch([pa.array([slot], pa.int32()), pa.array([parcel])], schema=SHAPE)


def unpacked(parcels: Iterable[bytes | pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """The rows of one slot's parcels, one row for each key."""
    tables = [_read(parcel) for parcel in parcels]
    if not tables:
        return
    metadata = tables[0].schema.metadata or {}
    fold = merging(msgspec.json.decode(metadata[_FOLD], type=Fold))
    rows = pa.concat_tables(tables).replace_schema_metadata(None)
    if len(tables) > 1:
        rows = folded(rows, fold)
    yield from rows.combine_chunks().to_batches(max_chunksize=MOST_ROWS)


def _written(rows: pa.Table) -> bytes:
    # Counts and sums of an epoch are small numbers: half of the bytes need not be carried.
    short, _ = packing.packed(rows.to_batches())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, short[0].schema) as stream:
        for batch in short:
            stream.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read(parcel: bytes | pa.Buffer) -> pa.Table:
    return pa.Table.from_batches(map(packing.unpacked, pa.ipc.open_stream(parcel)))
