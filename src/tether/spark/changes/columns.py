"""The columns by which a row says what it is: those of Spark's change feeds, and three of ours.

=====================================  ======================  ============================
DPC 2005 §3.1                          ``_change_type``        ``_stability``
=====================================  ======================  ============================
stable                                 insert                  stable
tentative                              insert                  tentative
undo, and the row in its place         update_preimage,        tentative,
                                       update_postimage        stable
undo, and nothing in its place         delete                  stable
=====================================  ======================  ============================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from pyspark.sql import functions as F

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

Kind = Literal["stable", "tentative"]

CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
STABILITY, EPOCH, FIDELITY = "_stability", "_epoch", "_fidelity"

CHANGE_COLUMNS = {
    CHANGE_TYPE: "string",
    COMMIT_VERSION: "bigint",
    STABILITY: "string",
    EPOCH: "bigint",
    FIDELITY: "double",
}
"""Names and Spark types, in their order after a row's own columns."""

INSERT, DELETE = "insert", "delete"
BEFORE, AFTER = "update_preimage", "update_postimage"


class Mark(NamedTuple):
    """A mark of all rows that are given at once."""

    kind: Kind
    version: int
    """The epoch that the query was at when it gave them."""
    fidelity: float = 1.0
    """Output fidelity, from 0 to 1 (PPA 2016 §III-A); 1 of stable rows."""
    replaces: tuple[int, ...] = ()
    """Other epochs, of which tentative rows were given that these take the place of."""


def marked(rows: DataFrame, change: str, epoch: int, mark: Mark) -> DataFrame:
    """The rows, each saying what it is.

    Args:
        rows: Rows of one epoch.
        change: Their change type.
        epoch: The epoch that they speak of.
        mark: What else is true of them.
    """
    values = (change, mark.version, mark.kind, epoch, mark.fidelity)
    return rows.select(
        "*",
        *[
            F.lit(value).cast(kind).alias(name)
            for (name, kind), value in zip(CHANGE_COLUMNS.items(), values, strict=True)
        ],
    )


def own_columns(names: Iterable[str]) -> list[str]:
    """A row's own columns.

    Example:
        >>> own_columns(["word", "count", "_change_type", "_epoch"])
        ['word', 'count']
    """
    return [name for name in names if name not in CHANGE_COLUMNS]


def check_columns(names: Iterable[str], key: Iterable[str]) -> None:
    """Refuse rows whose own columns are named like ours, and keys that are not columns.

    Raises:
        BadValueError: Says which.
    """
    names = list(names)
    taken = [name for name in names if name in CHANGE_COLUMNS]
    if taken:
        raise BadValueError(
            f"The output has columns named {', '.join(taken)}.",
            why="With tentative rows asked for, these names say what a row is.",
            do="Rename the columns, or do not ask for tentative rows.",
        )
    missing = [name for name in key if name not in names]
    if missing:
        raise BadValueError(
            f"The key {', '.join(map(repr, missing))} of the changes is not in the output.",
            why=f"The output has the columns {names}.",
            do="Name columns of the output that say which row a correction replaces.",
        )
