"""An aggregate of a ``groupBy``, taken apart: what is read, kept and shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from tether.algorithms.grouped import DistinctPart, Part
    from tether.algorithms.grouped_values import ValuesPart


@dataclass
class Aggregate:
    """One aggregate: what it reads of a row, what Spark folds, what is kept, what is shown."""

    inputs: dict[str, Column] = field(default_factory=dict)
    """Columns that are read of each row, by name."""
    parts: list[Part] = field(default_factory=list)
    distinct: DistinctPart | None = None
    values: ValuesPart | None = None
    shown: Callable[[], Column] = field(default=lambda: F.lit(None))
    """The answer, out of the parts' columns."""
