"""Spark's short form of a schema, read without a Java virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "tinyint": pa.int8(),
}


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of what Spark takes as one: short text, or a ``StructType``.

    Spark reads the text itself, in Java; this reads the plain part of it (simple types and arrays
    of them), for tests that start no Spark.

    Args:
        schema: For example ``"word string, n bigint"``, or a ``StructType``.

    Example:
        >>> arrow_schema("word string, n bigint, tags array<string>").field("n").type
        DataType(int64)

    Raises:
        BadValueError: A part of the text is not understood.
    """
    if not isinstance(schema, str):
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where needed

        made: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        return made
    return pa.schema([_field(part.strip(), schema) for part in _parts(schema) if part.strip()])


def _field(text: str, whole: str) -> pa.Field:
    if text.startswith("`"):
        name, _, rest = text[1:].partition("`")
    else:
        name, _, rest = text.partition(" ")
    kind = rest.strip().removeprefix(":").strip()
    nullable = not kind.lower().endswith("not null")
    kind = kind if nullable else kind[: -len("not null")]
    return pa.field(name.rstrip(":"), _type(kind.strip(), whole), nullable=nullable)


def _type(text: str, whole: str) -> pa.DataType:
    lower = text.lower()
    if lower.startswith("array<") and lower.endswith(">"):
        return pa.list_(_type(text[len("array<") : -1].strip(), whole))
    if lower not in _TYPES:
        raise BadValueError(
            f"The type {text!r} in the schema {whole!r} is not understood here.",
            why="Without Spark only simple types and arrays of them are read.",
            do="Give a StructType instead of text.",
        )
    return _TYPES[lower]


def _parts(text: str) -> Iterator[str]:
    """Split at commas that stand outside of angle brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]
