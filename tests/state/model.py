"""A table as a plain dict, with its backups, to compare with."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    import pyarrow as pa

    from tether.state import Export, Table

Row = dict[str, Any]


def check_divergence(reported: float, exact: Fraction, norm: str, *, whole: bool) -> None:
    """A reported divergence is never too small, and never too large by more than rounding."""
    if norm == "l2":
        assert Fraction(reported) ** 2 >= exact
        assert reported <= math.sqrt(exact) * (1 + 1e-9) + 1e-6
        return
    assert Fraction(reported) >= exact
    if whole:
        assert Fraction(reported) == exact
    else:
        assert reported <= float(exact) * (1 + 1e-9) + 1e-6


class TableModel:
    """A table with key column ``k``, as a dict, with what is durable and what to roll back to."""

    def __init__(self, starts: dict[str, Any]) -> None:
        self.starts = starts
        self.live: dict[Hashable, Row] = {}
        self.durable: dict[Hashable, Row] = {}
        self.frames: list[list[pa.RecordBatch]] = []
        self.touched: set[Hashable] = set()
        self.stale = False
        """Whether the backups hold keys that were cleared away."""
        self._saved: Any = None

    def begin(self) -> None:
        self._saved = copy.deepcopy((self.live, self.durable)), len(self.frames), self.stale
        self.touched = set()

    def rollback(self) -> None:
        state, frames, self.stale = copy.deepcopy(self._saved)
        self.live, self.durable = state
        del self.frames[frames:]
        self.touched = set()

    def _row(self, key: Hashable) -> Row:
        self.touched.add(key)
        return self.live.setdefault(key, dict(self.starts))

    def change(self, operation: str, keys: Iterable[Hashable], **columns: list[Any]) -> None:
        for at, key in enumerate(keys):
            row = self._row(key)
            for name, values in columns.items():
                value = values[at]
                if operation == "add":
                    row[name] += value
                elif operation == "put":
                    row[name] = value
                elif operation == "maximum":
                    row[name] = max(row[name], value)
                else:
                    row[name] = min(row[name], value)

    def clear(self) -> None:
        self.stale = self.stale or bool(self.durable)
        self.live = {}
        self.touched = set()

    def exported(self, export: Export) -> None:
        if not export.batches:
            return
        self.frames.append(export.batches)
        if export.full:
            self.durable = {}
            self.stale = False
        for batch in export.batches:
            for row in batch.to_pylist():
                self.durable[row.pop("k")] = row


def contents(table: Table) -> dict[Hashable, Row]:
    """All of a table with one key column ``k``."""
    rows = [row for batch in table.batches(max_rows=7) for row in batch.to_pylist()]
    result = {row.pop("k"): row for row in rows}
    assert len(result) == len(rows) == len(table)
    return result
