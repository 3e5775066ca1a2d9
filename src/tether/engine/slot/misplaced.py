"""Noticing that a host's partitions are not the slots.

A task learns its slot from the number of its partition. On Spark that number is another one where a
plan puts partitions of an operator together or behind others without a shuffle between: a sink that
calls ``coalesce``, a ``union``. It shows in one of three ways, all of which are checked: rows of another
slot, a number beyond the last slot, or one task that runs a slot twice.
"""

from __future__ import annotations

from tether.core.errors import TetherError


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
