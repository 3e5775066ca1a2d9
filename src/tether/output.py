"""The rows that an operator emits, checked against its declared schema before Spark gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tether.core.errors import OutputSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Output:
    """Collects the batches that an operator emits in one call of its code.

    Example:
        >>> out = Output(pa.schema([("word", pa.string()), ("n", pa.int64())]))
        >>> out.emit({"word": ["a", "b"], "n": [1, 2]})
        >>> [batch.num_rows for batch in out.drain()]
        [2]
    """

    def __init__(self, schema: pa.Schema, feedback_schema: pa.Schema | None = None) -> None:
        self.schema, self.feedback_schema = schema, feedback_schema
        self.rows = 0
        self._pending: list[pa.RecordBatch] = []
        self._feedback: list[pa.RecordBatch] = []

    def emit(self, rows: pa.RecordBatch | pa.Table | dict[str, object]) -> None:
        """Send rows to the next operator or to the sink. Columns are matched by name."""
        for batch in _batches(rows):
            self._pending.append(_fit(batch, self.schema, "output"))
            self.rows += batch.num_rows

    def feedback(self, rows: pa.RecordBatch | pa.Table | dict[str, object]) -> None:
        """Send items back to the operator given as ``feedback_to``; it gets them in the next epoch."""
        if self.feedback_schema is None:
            raise OutputSchemaError(
                "The operator sent feedback.",
                why="It declares no feedback schema.",
                do="Name the columns in the operator's feedback attribute, as for output.",
            )
        for batch in _batches(rows):
            self._feedback.append(_fit(batch, self.feedback_schema, "feedback"))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Return what was emitted since the last call, and forget it."""
        pending, self._pending = self._pending, []
        yield from pending

    def drain_feedback(self) -> list[pa.RecordBatch]:
        """Return the feedback that was sent since the last call, and forget it."""
        sent, self._feedback = self._feedback, []
        return sent


def _batches(rows: pa.RecordBatch | pa.Table | dict[str, object]) -> list[pa.RecordBatch]:
    if isinstance(rows, dict):
        rows = pa.table(rows)
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    return [batch for batch in batches if batch.num_rows]


def _fit(batch: pa.RecordBatch, schema: pa.Schema, which: str) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    surplus = [name for name in batch.schema.names if name not in schema.names]
    if missing or surplus:
        raise OutputSchemaError(
            f"The operator emitted the columns {batch.schema.names}.",
            why=f"Its {which} schema declares {schema.names}"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not declared: {surplus}" if surplus else "")
            + ".",
            do=f"Emit exactly the declared columns, or change the operator's {which} schema.",
        )
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OutputSchemaError(
                f"The operator emitted column {field.name!r} as {column.type}.",
                why=f"Its {which} schema declares {field.type}, and the values do not fit: {error}",
                do=f"Emit the declared type, or change the operator's {which} schema.",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
