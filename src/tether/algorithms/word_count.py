"""Word count: lines to words in Spark SQL, then a keyed count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tether.algorithms.aggregate import KeyedAggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def words(lines: DataFrame, column: str = "value") -> DataFrame:
    """Split lines at white space into one row per word, in lower case.

    Args:
        lines: A DataFrame with a text column, streaming or static.
        column: Name of the text column.
    """
    split = F.explode(F.split(F.lower(F.trim(F.col(column))), r"\s+"))
    return lines.select(split.alias("word")).filter(F.col("word") != "")


class WordCount(KeyedAggregate):
    """How often each word has come; apply it to :func:`words` with ``key="word"``.

    The divergence is ``max``: after failures, no word's count is wrong by more than the bound
    (AF-Stream 2019, Table 3).

    Example:
        >>> WordCount().name
        'word_count'
    """

    def __init__(self, *, emit: str = "changed") -> None:
        super().__init__(count="count", emit=emit, divergence="max")  # type: ignore[arg-type]
