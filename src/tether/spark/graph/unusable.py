"""Rows with unusable numbers: NaN, infinities, and nulls where they are not allowed."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, NumericType

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


def unusable(rows: DataFrame, columns: Sequence[str], *, nulls: bool) -> Column:
    """Whether a row has something in one of the columns that no number can be made with.

    Args:
        rows: Tell the columns' types.
        columns: Columns of numbers.
        nulls: Whether a null is such a thing.

    Raises:
        BadValueError: A column is not there, or holds no numbers.
    """
    return reduce(lambda one, other: one | other, (_of(rows, name, nulls) for name in columns))


def _of(rows: DataFrame, name: str, nulls: bool) -> Column:
    if name not in rows.columns or not isinstance(rows.schema[name].dataType, NumericType):
        raise BadValueError(
            f"{name!r} is not a column of numbers.",
            why=f"The rows are {rows.schema.simpleString()}.",
        )
    value = F.col(f"`{name}`")
    bad = F.lit(False)
    if isinstance(rows.schema[name].dataType, (FloatType, DoubleType)):
        bad = F.coalesce(F.isnan(value) | (F.abs(value) == math.inf), F.lit(False))
    return bad | value.isNull() if nulls else bad
