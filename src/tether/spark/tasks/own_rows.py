"""Checking that the rows of a partition are those of the slot of its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Seat
from tether.engine.slot.misplaced import misplaced
from tether.sources.folding.parcels import PARCEL, unpacked
from tether.spark.graph.plan import SLOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


def check_numbers(batches: Iterable[pa.RecordBatch], seat: Seat) -> None:
    """Check that a partition that has nothing but its own number is the slot of that number.

    Without rows of slots there is nothing else by which a task could see that a sink has put
    partitions together.
    """
    for batch in batches:
        numbers = batch.column(0).to_numpy()
        if not (numbers == seat).all():
            wrong = numbers[numbers != seat][0]
            raise misplaced(f"The partition of slot {wrong} came to that of slot {seat}.")


def own_rows(batches: Iterable[pa.RecordBatch], seat: Seat) -> Iterator[pa.RecordBatch]:
    """The rows without their slot column, after a check that they belong here; parcels unpacked."""
    parcels: list[bytes] = []
    for batch in batches:
        where = batch.schema.get_field_index(SLOT)
        slots = batch.column(where).to_numpy()
        if batch.num_rows and not ((slots == seat).all()):
            raise misplaced(
                f"Rows of slot {slots[slots != seat][0]} came to the partition of slot {seat}."
            )
        if batch.num_rows and batch.schema.names[-1] == PARCEL:
            parcels += batch.column(PARCEL).to_pylist()  # copied, so that numbers are aligned
        elif batch.num_rows:
            yield batch.remove_column(where)
    yield from unpacked(parcels)
