"""What says of an operator that its rows are folded where they are read, and what makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.spark.folding.held import Held

Parcel = Union[bytes, "Held"]
"""Folded rows of a slot, or where the driver holds them."""
Parcels = dict[int, tuple[Parcel, ...]]
"""The rows of each slot that has any."""


class FoldedRows(Protocol):
    """Gives the rows of each epoch, folded."""

    rows_read: int
    """Rows of the newest epoch, where Spark, which does not see them, counts none."""
    why_not: str
    """Why Spark reads the newest epoch itself, if it does."""

    def of(self, rows: DataFrame) -> DataFrame | Parcels | None:
        """Parcels as rows, or at hand; None if Spark must read this epoch.

        Args:
            rows: The epoch's rows as Spark has them.
        """
        ...


class Folding(Protocol):
    """How the rows of an operator are folded."""

    @property
    def told(self) -> str:
        """A short description, for people."""
        ...

    def for_slots(self, slots: int) -> FoldedRows:
        """Gives the rows of each epoch to this number of slots."""
        ...
