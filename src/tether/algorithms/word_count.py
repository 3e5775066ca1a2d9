"""Word count: lines to words in Spark SQL, then a keyed count; or both as operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.text import check_text
from tether.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState


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


class PartialCounts(Operator):
    """Upstream of the two-stage form: lines in, words with the counts of a batch out.

    Keeps nothing between batches, so there is nothing to lose. Null lines have no words.

    Args:
        column: The text column.

    Example:
        >>> PartialCounts().name
        'partial_counts'
    """

    output = "word string, count bigint"
    repeats = True
    merges = True

    def __init__(self, column: str = "value") -> None:
        self._column = column

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Check the text column."""
        del key
        check_text(schema, self._column)

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Split, lower and count in Arrow."""
        split = pc.ascii_split_whitespace(pc.utf8_lower(batch.column(self._column)))
        counted = pc.value_counts(pc.list_flatten(split))
        found = counted.filter(pc.not_equal(counted.field("values"), ""))
        out.emit({"word": found.field("values"), "count": found.field("counts")})


class MergedCounts(Operator):
    """Downstream of the two-stage form: add intermediate counts up; ``key="word"``.

    No word's count is wrong by more than the bound (AF-Stream 2019, table 3).

    Example:
        >>> MergedCounts().name
        'merged_counts'
    """

    output = "word string, count bigint"
    repeats = True
    merges = True

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Whether each word has a slot of its own: by any other key its counts are spread."""
        del schema
        self.disjoint = list(key) == ["word"]

    def setup(self, state: SlotState) -> None:
        """A count for each word."""
        self._words = state.table(
            "words", {"word": pa.string()}, {"count": "int64"}, divergence="max"
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add."""
        del out
        self._words.add(batch.select(["word"]), count=batch["count"])

    def on_epoch_end(self, out: Output) -> None:
        """Emit the words of this epoch with their new counts."""
        out.emit(self._words.rows_to_batch(self._words.changed()))
