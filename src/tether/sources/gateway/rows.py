"""Rows as they come: checked against the stream's schema before anything is done with them."""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pyarrow.json

from tether.sources.gateway.errors import BadRowsError

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines


def same_schema(stream: str, wanted: pa.Schema, got: pa.Schema) -> None:
    """Refuse rows of another shape.

    Raises:
        BadRowsError: Says which columns differ.
    """
    if wanted.equals(got) or [(f.name, f.type) for f in wanted] == [(f.name, f.type) for f in got]:
        return
    have = {field.name: str(field.type) for field in wanted}
    came = {field.name: str(field.type) for field in got}
    differ = [
        f"{name}: {came.get(name, 'missing')} in place of {have.get(name, 'nothing')}"
        for name in sorted({*have, *came})
        if have.get(name) != came.get(name)
    ]
    raise BadRowsError(
        f"The rows do not have the schema of the stream {stream!r}.",
        why="; ".join(differ) + "." if differ else "The columns come in another order.",
        do=f"Send {', '.join(f'{name} {kind}' for name, kind in have.items())}; or send to a new "
        "stream, for the schema of one does not change.",
    )


def from_ndjson(stream: str, schema: pa.Schema, text: bytes) -> pa.RecordBatch:
    """Rows of newline-delimited JSON: all of them, or an error that says which line is wrong."""
    options = pyarrow.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="error", newlines_in_values=False
    )
    if not text.strip():
        return pa.RecordBatch.from_pylist([], schema=schema)
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 10))
    try:
        _objects(text)  # Arrow's reader takes ``null`` for a row, or for the end of the process
        table = pyarrow.json.read_json(io.BytesIO(text), reading, options)
        table.validate(full=True)  # it does not look whether text is UTF-8
    except (msgspec.DecodeError, pa.ArrowException) as error:
        raise BadRowsError(
            f"A line for the stream {stream!r} cannot be read.",
            why=str(error),
            do="Send one JSON object a line, with the stream's columns. None of these rows was taken.",
        ) from error
    return _one(table.select(schema.names).cast(schema), schema)


def from_ipc(stream: str, schema: pa.Schema, data: bytes) -> pa.RecordBatch:
    """Rows of an Arrow IPC stream."""
    try:
        with pa.ipc.open_stream(data) as reader:
            came, table = reader.schema, reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadRowsError(
            f"What came for the stream {stream!r} is no whole Arrow IPC stream.",
            why=str(error),
            do="Write it with pyarrow.ipc.new_stream, or another Arrow library. No row was taken.",
        ) from error
    same_schema(stream, schema, came)
    return _one(table, schema)


def conform(schema: pa.Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows under the stream's own schema object: without metadata, nullable as it says."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without metadata, all columns nullable: what a stream keeps.

    Raises:
        BadRowsError: It has dictionaries, which rows of several producers do not share.
    """
    coded = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    if coded:
        raise BadRowsError(
            f"The columns {', '.join(coded)} are encoded by dictionaries.",
            why="Every producer would have dictionaries of its own.",
            do="Send plain columns: column.dictionary_decode().",
        )
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _one(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    merged = table.combine_chunks().to_batches()
    if not merged:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return conform(schema, merged[0])
