"""Grep: the lines that match a pattern, from all slots, merged. No state at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.text import check_text
from tether.core.errors import BadValueError
from tether.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tether.output import Output


class Grep(Operator):
    """Upstream: pass on the rows whose text matches.

    Nothing is kept between rows, so nothing can be lost (AF-Stream 2019, table 3).

    Args:
        pattern: A regular expression in RE2's syntax.
        column: The text column.
        ignore_case: Whether capital and small letters are alike.

    Example:
        >>> Grep("whale").name
        'grep'
    """

    repeats = True
    merges = True

    def __init__(self, pattern: str, column: str = "value", *, ignore_case: bool = False) -> None:
        self._pattern, self._column, self._ignore_case = pattern, column, ignore_case
        try:
            self._matches(pa.array([""]))
        except pa.ArrowInvalid as error:
            raise BadValueError(
                f"The pattern {pattern!r} is not a regular expression.", why=str(error)
            ) from error

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Rows go out as they come in."""
        del key
        check_text(schema, self._column)
        self.output = schema

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Filter; a null line matches nothing."""
        out.emit(batch.filter(self._matches(batch.column(self._column))))

    def _matches(self, lines: pa.Array) -> pa.Array:
        return pc.match_substring_regex(lines, self._pattern, ignore_case=self._ignore_case)


class MergedLines(Operator):
    """Downstream: bring the matched rows of all slots into one (``parallelism=1``).

    Example:
        >>> MergedLines().name
        'merged_lines'
    """

    repeats = True
    merges = True

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Rows go out as they come in."""
        del key
        self.output = schema

    def amplification(self, before: Operator) -> float:
        """Rows go out as they come in, and so do their errors: 1."""
        del before
        return 1.0

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Pass on."""
        out.emit(batch)
