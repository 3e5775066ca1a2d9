"""A program's rows, checked and made into batches before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_columns(rows: list[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Refuse rows with columns that the stream does not have.

    Raises:
        BadValueError: Says which row, and what the columns are.
    """
    known = set(schema.names)
    for row in rows:
        if not hasattr(row, "keys") or not known.issuperset(row):
            raise BadValueError(
                f"{row!r} is not a row of this stream.",
                why=f"Its columns are {', '.join(schema.names)}.",
                do="Send a mapping from these names to values.",
            )


def batch_of(rows: list[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Single rows as one batch.

    Raises:
        BadValueError: One of them does not fit.
    """
    try:
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadValueError(
            f"Among {len(rows)} rows is one that does not fit the schema.",
            why=str(error),
            do="None of these rows was sent. Check them against the schema.",
        ) from error


def batches_of(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Arrow rows as batches of a producer's schema; none of them is empty.

    Raises:
        BadValueError: They have another schema.
    """
    if [(f.name, f.type) for f in rows.schema] != [(f.name, f.type) for f in schema]:
        raise BadValueError(
            "The rows have another schema than the producer.",
            why=f"They are {rows.schema.to_string(show_field_metadata=False)}.",
            do=f"Send {schema.to_string(show_field_metadata=False)}.",
        )
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return [
        pa.RecordBatch.from_arrays(one.columns, schema=schema)
        for one in table.to_batches()
        if one.num_rows
    ]
