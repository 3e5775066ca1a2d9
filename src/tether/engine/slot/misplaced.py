"""Detects that a host's partitions are not the slots.

A task learns its slot from the number of its partition. On Spark the numbers differ where a plan merges
partitions of an operator, or puts them behind others, without a shuffle between: a sink that calls
``coalesce``, a ``union``. Three signs of that are checked: rows of another slot, a number beyond the
last slot, and one task that runs a slot twice.
"""

from __future__ import annotations

from tether.core.errors import TetherError


class MisplacedRowsError(TetherError):
    """A partition is not the slot of its number; the driver then uses another plan."""

    code = "misplaced-rows"


def misplaced(what: str) -> MisplacedRowsError:
    """The error, with the sign that was found."""
    return MisplacedRowsError(
        what,
        why="Spark did not place the rows as the plan asked.",
        do="The query places them itself from now on; if you read this, report it.",
    )
