"""What the operators on text ask of their input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_text(schema: StructType, column: str) -> None:
    """Refuse an input without that column of text.

    Raises:
        BadValueError: Says what the input has instead.
    """
    if column not in schema.names:
        raise BadValueError(
            f"The text column {column!r} is not in the input.",
            why=f"The input has the columns {schema.names}.",
        )
    kind = schema[column].dataType.simpleString()
    if kind != "string":
        raise BadValueError(
            f"The column {column!r} of type {kind} is not text.", do="Cast it to string first."
        )
