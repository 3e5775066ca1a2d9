"""What an operator emits: checked against its declared schema before Spark sees it."""

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

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._pending: list[pa.RecordBatch] = []

    def emit(self, rows: pa.RecordBatch | pa.Table | dict[str, object]) -> None:
        """Send rows on: to the next operator or the sink. Columns are matched by name."""
        if isinstance(rows, dict):
            rows = pa.table(rows)
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in batches:
            if batch.num_rows:
                self._pending.append(self._fit(batch))
                self.rows += batch.num_rows

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give what was emitted since the last call, once."""
        pending, self._pending = self._pending, []
        yield from pending

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        missing = [name for name in self.schema.names if name not in batch.schema.names]
        surplus = [name for name in batch.schema.names if name not in self.schema.names]
        if missing or surplus:
            raise OutputSchemaError(
                f"The operator emitted the columns {batch.schema.names}.",
                why=f"Its output schema declares {self.schema.names}"
                + (f"; missing: {missing}" if missing else "")
                + (f"; not declared: {surplus}" if surplus else "")
                + ".",
                do="Emit exactly the declared columns, or change the operator's output schema.",
            )
        columns = []
        for field in self.schema:
            column = batch.column(field.name)
            try:
                columns.append(
                    column if column.type.equals(field.type) else column.cast(field.type)
                )
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise OutputSchemaError(
                    f"The operator emitted column {field.name!r} as {column.type}.",
                    why=f"Its output schema declares {field.type}, and the values do not fit: {error}",
                    do="Emit the declared type, or change the operator's output schema.",
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
