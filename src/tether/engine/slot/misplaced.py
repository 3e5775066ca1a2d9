"""Noticing that Spark's partitions are not the slots.

A task learns its slot from the number of its partition. That number is another one where a plan
puts partitions of an operator together or behind others without a shuffle between: a sink that calls
``coalesce``, a ``union``. It shows in one of three ways, all of which are checked: rows of another
slot, a number beyond the last slot, or one task that runs a slot twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.spark.graph.plan import SLOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class MisplacedRowsError(TetherError):
    """A partition is not the slot that its number says; the driver answers with another plan."""

    code = "misplaced-rows"


def misplaced(what: str) -> MisplacedRowsError:
    """The error, with what showed it."""
    return MisplacedRowsError(
        what,
        why="Spark did not place the rows as the plan asked.",
        do="The query places them itself from now on; if you read this, report it.",
    )


def own_rows(batches: Iterator[pa.RecordBatch], slot: int) -> Iterator[pa.RecordBatch]:
    """The rows without their slot column, once it is sure that they belong here."""
    for batch in batches:
        where = batch.schema.get_field_index(SLOT)
        slots = batch.column(where).to_numpy()
        if batch.num_rows and not ((slots == slot).all()):
            raise misplaced(
                f"Rows of slot {slots[slots != slot][0]} came to the partition of slot {slot}."
            )
        if batch.num_rows:
            yield batch.remove_column(where)
