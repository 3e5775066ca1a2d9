"""A hash table from keys to numbers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state.arrow import wrapped
from tether.state.cells import Cells
from tether.state.codec import Codec
from tether.state.columns import as_values, parse_columns
from tether.state.divergence import check_norm, check_weights
from tether.state.header import (
    BACKED,
    CLEARED,
    CLEARED_KEYS,
    DIRTY_COUNT,
    GENERATION,
    INDEX,
    KEY_WORDS,
    PEAK,
    ROWS,
    SLACK,
    SUM_FLOAT,
    SUM_HIGH,
    SUM_LOW,
)
from tether.state.keys import Keys
from tether.state.primitive import BATCH_ROWS, CellPrimitive
from tether.state.updates import Operation, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tether.state.segment import Array


@dataclass(frozen=True)
class Lookup:
    """What a table holds for a batch of keys, in the order of the batch."""

    found: Array
    """Whether each key is in the table."""
    rows: Array
    """Row of each key; -1 if it is not there."""
    columns: dict[str, Array]
    """Values by column; 0 where the key is not there."""

    def to_batch(self) -> pa.RecordBatch:
        """The values as an Arrow batch, null where the key is not there."""
        return pa.RecordBatch.from_pydict(
            {name: wrapped(values, valid=self.found) for name, values in self.columns.items()}
        )


class Table(CellPrimitive):
    """Keys with numeric columns: counters per key, join states, aggregates.

    Made by ``SlotState.table``. Keys are one or more columns of nearly any Arrow type; null is a
    key like any other. All work is on whole batches. Its divergence is ``l1``, ``l2`` or ``max``
    over all values (a key that the backups do not know counts as 0 there), or ``count``, the
    difference of the numbers of keys; see AF-Stream 2019, table 8.

    Example:
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> words = state.table("words", keys={"word": pa.string()}, values={"n": "int64"})
        >>> state.begin(0)
        >>> rows = words.add([["to", "be", "or", "not", "to", "be"]], n=1)
        >>> words.get([["be", "question"]]).columns["n"].tolist()
        [2, 0]
        >>> words.divergence()
        6.0
    """

    kind = "table"

    @staticmethod
    def plan(
        name: str,
        keys: pa.Schema | Mapping[str, pa.DataType],
        values: Mapping[str, str],
        divergence: str,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Check a table's description and give it in the form that is stored.

        Raises:
            BadValueError: A type, name, divergence or weight cannot be used.
        """
        schema = keys if isinstance(keys, pa.Schema) else pa.schema(list(keys.items()))
        Codec(list(schema))
        columns = parse_columns(values)
        twice = set(schema.names) & set(values)
        if twice or len(set(schema.names)) < len(schema.names):
            raise BadValueError(
                f"Table {name!r} has two columns of one name.",
                why=f"Key columns: {schema.names}; value columns: {list(values)}.",
                do="Give every column its own name.",
            )
        numeric = [column.name for column in columns if not column.flag]
        return {
            "kind": Table.kind,
            "name": name,
            "keys": base64.b64encode(schema.remove_metadata().serialize()).decode(),
            "values": dict(values),
            "divergence": check_norm(divergence, keyed=True),
            "weights": check_weights(weights, numeric),
        }

    def _open_parts(self) -> None:
        spec = self.spec
        buffer = pa.py_buffer(base64.b64decode(spec["keys"]))
        self.key_schema: pa.Schema = pa.ipc.read_schema(buffer)
        self._columns = parse_columns(spec["values"])
        self._keys = Keys(self.place, Codec(list(self.key_schema)))
        self._cells = Cells(
            self.place, self._columns, spec["divergence"], spec["weights"], keyed=True
        )
        kinds = {column.name: pa.type_for_alias(column.kind) for column in self._columns}
        fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
        self.schema = pa.schema([*self.key_schema, *fields])
        """Key columns, then value columns: what ``batches`` and exports give."""

    def describe(self) -> dict[str, Any]:
        """Kind, types and divergence as plain values."""
        keys = {field.name: str(field.type) for field in self.key_schema}
        return {**self.spec, "keys": keys}

    # Changing

    def add(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Add to the values of some keys; new keys start at 0, repeated keys add up.

        What is added to a flag raises it to at least that value.

        Args:
            keys: A batch or struct array with columns of the keys' names, or a list of arrays in
                the order of the key columns.
            unique: Promise that no key is repeated in the batch, which saves a sort.
            **columns: Value column by name: one number for each key, or one for all.

        Returns:
            The row number of each key.

        Raises:
            BadValueError: NaN, nulls, wrong lengths or types, or an integer overflow. Nothing is
                changed then.
        """
        return self._change("add", keys, columns, unique)

    def put(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Set values of some keys; the last of repeated keys wins. Arguments as for ``add``."""
        return self._change("put", keys, columns, unique)

    def maximum(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Keep the largest value seen per key. Arguments as for ``add``."""
        return self._change("maximum", keys, columns, unique)

    def minimum(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Keep the smallest value seen per key. Arguments as for ``add``."""
        return self._change("minimum", keys, columns, unique)

    def _change(
        self, operation: Operation, keys: Any, columns: Mapping[str, Any], unique: bool
    ) -> Array:
        stamp = self.place.stamp()
        arrays = self._arrays(keys)
        given = self._given(columns, len(arrays[0]))
        existing = len(self)
        # New keys do not exist before their number is stored, so a bad value leaves none behind.
        rows, after = self._keys.upsert(arrays)
        if after > existing:
            self._cells.lay(existing, after, stamp)
        staged = stage(self._cells, rows, given, operation, unique=unique, first_new=existing)
        self.place.page.words[ROWS] = after
        self._cells.apply(staged, stamp)
        return rows

    def _given(self, columns: Mapping[str, Any], length: int) -> dict[str, Array]:
        unknown = [name for name in columns if name not in self._cells.columns]
        if unknown:
            raise BadValueError(
                f"Table {self.name!r} has no column {unknown[0]!r}.",
                do=f"Use {', '.join(self._cells.columns) or 'no column'}.",
            )
        return {
            name: as_values(self._cells.columns[name], values, length)
            for name, values in columns.items()
        }

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
            f"The keys for table {self.name!r} cannot be used.",
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
        page, words = self.place.page, self.place.page.words
        if self.place.track:
            page.floats[CLEARED] += self._cells.durable_size()
            words[CLEARED_KEYS] += words[BACKED]
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

    def _zero_counts(self) -> None:
        words, floats = self.place.page.words, self.place.page.floats
        for word in (ROWS, BACKED, DIRTY_COUNT, SUM_LOW, SUM_HIGH, PEAK):
            words[word] = 0
        floats[SUM_FLOAT] = floats[SLACK] = 0.0

    # Reading

    def get(self, keys: Any) -> Lookup:
        """Look keys up. Argument as for ``add``; nothing is added."""
        rows = self._keys.find(self._arrays(keys))
        found = rows >= 0
        columns = {}
        for column in self._columns:
            values = np.zeros(len(rows), column.kind)
            values[found] = self._cells.take(rows[found], column.name)
            columns[column.name] = values
        return Lookup(found, rows, columns)

    def values(self, name: str) -> Array:
        """One column of all rows, as a read-only view to use before the next change."""
        view = self._cells.column(name)
        view.flags.writeable = False
        return view

    def rows_to_batch(self, rows: Array | slice) -> pa.RecordBatch:
        """Keys and values of some rows, copied."""
        keys = self._keys.decode(rows)
        values = [wrapped(self._cells.take(rows, column.name)) for column in self._columns]
        return pa.RecordBatch.from_arrays([*keys, *values], schema=self.schema)

    def batches(self, max_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """All keys and values in order of arrival, in batches of at most ``max_rows``."""
        for start in range(0, len(self), max_rows):
            yield self.rows_to_batch(slice(start, min(start + max_rows, len(self))))

    # Backups

    def _smaller_whole(self, entries: int) -> bool:
        return 0 < len(self) <= entries

    def _batches(self, rows: Array) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield self.rows_to_batch(rows[start : start + BATCH_ROWS])

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        if not len(self):
            yield self.rows_to_batch(slice(0, 0))

    def _load(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names != self.schema.names:
            raise BackupUnreadableError(
                f"A backup of table {self.name!r} does not fit it.",
                why=f"Its columns are {batch.schema.names}, not {self.schema.names}.",
                do="Restore with the program that wrote the backup.",
            )
        existing = len(self)
        rows, after = self._keys.upsert(self._arrays(batch))
        if after > existing:
            self._cells.lay(existing, after, 0)
        self.place.page.words[ROWS] = after
        columns = {column.name: batch.column(column.name) for column in self._columns}
        self._cells.load(rows, self._given(columns, len(rows)))

    def _empty(self) -> None:
        self._zero_counts()

    def refresh(self) -> None:
        """Follow what other processes did."""
        super().refresh()
        self._keys.refresh()
