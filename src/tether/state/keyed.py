"""Entries found by keys: what tables and sets have in common."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state.arrow import wrapped
from tether.state.codec import Codec
from tether.state.entries import CellPrimitive
from tether.state.header import (
    BACKED,
    DIRTY_COUNT,
    GENERATION,
    INDEX,
    KEY_WORDS,
    MEMBERS,
    PEAK,
    ROWS,
    SLACK,
    SUM_FLOAT,
    SUM_HIGH,
    SUM_LOW,
)
from tether.state.keys import Keys
from tether.state.primitive import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tether.state.columns import Column
    from tether.state.segment import Array


def plan_keys(keys: pa.Schema | Mapping[str, pa.DataType]) -> tuple[pa.Schema, str]:
    """Key columns as a schema, and in the form that is stored.

    Raises:
        BadValueError: A type cannot be part of a key.
    """
    schema = keys if isinstance(keys, pa.Schema) else pa.schema(list(keys.items()))
    Codec(list(schema))
    return schema, base64.b64encode(schema.remove_metadata().serialize()).decode()


class Keyed(CellPrimitive):
    """Rows that come to exist when their key is first seen."""

    _columns: tuple[Column, ...]

    def _open_keys(self) -> None:
        buffer = pa.py_buffer(base64.b64decode(self.spec["keys"]))
        self.key_schema: pa.Schema = pa.ipc.read_schema(buffer)
        self._keys = Keys(self.place, Codec(list(self.key_schema)))

    def _name_columns(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        kinds = {column.name: pa.type_for_alias(column.kind) for column in columns}
        fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
        self.schema = pa.schema([*self.key_schema, *fields])
        """Key columns, then value columns: what ``batches`` and exports give."""

    def describe(self) -> dict[str, Any]:
        """Kind, types and divergence as plain values."""
        keys = {field.name: str(field.type) for field in self.key_schema}
        return {**self.spec, "keys": keys}

    def _arrays(self, keys: Any) -> list[Any]:
        names = self.key_schema.names
        if isinstance(keys, pa.StructArray):
            keys = pa.RecordBatch.from_struct_array(keys)
        if isinstance(keys, (pa.RecordBatch, pa.Table)):
            missing = [name for name in names if name not in keys.schema.names]
            if missing:
                raise self._bad_keys(f"the batch has no column {missing[0]!r}")
            return [keys.column(name) for name in names]
        arrays = [
            array if isinstance(array, (pa.Array, pa.ChunkedArray)) else pa.array(array, kind)
            for array, kind in zip(keys, self.key_schema.types, strict=False)
        ]
        if len(keys) != len(names) or len({len(array) for array in arrays}) != 1:
            raise self._bad_keys(f"{len(keys)} arrays were given, or their lengths differ")
        return arrays

    def _bad_keys(self, why: str) -> BadValueError:
        return BadValueError(
            f"The keys for {self.kind} {self.name!r} cannot be used.",
            why=f"{why}; the key columns are {', '.join(self.key_schema.names)}.",
            do="Give a batch with these columns, or one array for each, in this order.",
        )

    def clear(self) -> None:
        """Drop all keys, as at the end of a window; takes back nothing that was backed up.

        The cost does not depend on the number of keys unless the state is tracked, and the old
        keys' memory is given back when the next epoch begins. The next export is a full one.
        Until then the divergence counts all that the backups still hold.
        """
        self.place.stamp()
        if self.place.track:
            self._cells.note_cleared()
        self._start_generation()

    def _zero_counts(self) -> None:
        words, floats = self.place.page.words, self.place.page.floats
        for word in (ROWS, BACKED, DIRTY_COUNT, SUM_LOW, SUM_HIGH, PEAK, MEMBERS):
            words[word] = 0
        floats[SUM_FLOAT] = floats[SLACK] = 0.0

    def _start_generation(self) -> None:
        """Switch to new, empty files; those to roll back to stay as they are."""
        page, words = self.place.page, self.place.page.words
        # Key words of even and odd generations lie apart: those to roll back to stay intact.
        in_first = self._generation == page.saved(GENERATION)
        fresh = self._generation + (1 if in_first else 2)
        self.place.litter()
        self.place.purge(f"{fresh}.")
        start = INDEX + KEY_WORDS * (fresh % 2)
        for word in range(start, start + KEY_WORDS):
            words[word] = 0
        self._zero_counts()
        words[GENERATION] = fresh
        self._open()

    def rows_to_batch(self, rows: Array | slice) -> pa.RecordBatch:
        """Keys and values of some rows, copied."""
        keys = self._keys.decode(rows)
        values = [wrapped(self._cells.take(rows, column.name)) for column in self._columns]
        return pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema)

    def batches(self, max_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """All keys and values in order of arrival, in batches of at most ``max_rows``."""
        for start in range(0, len(self), max_rows):
            yield self.rows_to_batch(slice(start, min(start + max_rows, len(self))))

    def _batches(self, rows: Array) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield self.rows_to_batch(rows[start : start + BATCH_ROWS])

    def _rows_of_backup(self, batch: pa.RecordBatch, *allowed: list[str]) -> Array:
        """Rows of a backup's keys, made where they are missing.

        Raises:
            BackupUnreadableError: Its columns are not among those allowed.
        """
        if batch.schema.names not in allowed:
            raise BackupUnreadableError(
                f"A backup of {self.kind} {self.name!r} does not fit it.",
                why=f"Its columns are {batch.schema.names}, not {allowed[0]}.",
                do="Restore with the program that wrote the backup.",
            )
        existing = len(self._cells)
        rows, after = self._keys.upsert(self._arrays(batch))
        if after > existing:
            self._cells.lay(existing, after, 0)
        self.place.page.words[ROWS] = after
        return rows

    def _empty(self) -> None:
        self._zero_counts()

    def _expect(self, entries: int) -> None:
        self._keys.index.expected = entries

    def refresh(self) -> None:
        """Follow what other processes did."""
        super().refresh()
        self._keys.refresh()
