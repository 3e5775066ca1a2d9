"""A hash table from keys to numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError
from tether.state.arrow import wrapped
from tether.state.cells import Cells
from tether.state.columns import as_values, parse_columns
from tether.state.header import ROWS
from tether.state.keyed import Keyed, plan_keys
from tether.state.norms import check_norm, check_weights
from tether.state.starts import plan_starts
from tether.state.updates import Operation, stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tether.state.segment import Array


@dataclass(frozen=True)
class Lookup:
    """What a table holds for a batch of keys, in the order of the batch."""

    found: Array
    """Whether each key is in the table."""
    rows: Array
    """Row of each key; -1 if it is not there."""
    columns: dict[str, Array]
    """Values by column; where the key is not there, what the column starts from: 0 if not declared."""

    def to_batch(self) -> pa.RecordBatch:
        """The values as an Arrow batch, null where the key is not there."""
        return pa.RecordBatch.from_pydict(
            {name: wrapped(values, valid=self.found) for name, values in self.columns.items()}
        )


class Table(Keyed):
    """Keys with numeric columns: counters per key, join states, aggregates.

    Made by ``SlotState.table``. Keys are one or more columns of nearly any Arrow type; null is a
    key like any other. All work is on whole batches. Its divergence is ``l1``, ``l2`` or ``max``
    over all values, or ``count``; see AF-Stream 2019, table 8.

    A key that was never seen stands for what its columns start from: 0, if nothing else is declared.
    All changes begin there, and a key that the backups do not know counts as that far away. So no
    change makes the difference between a state and what was recovered of it larger. An infinite
    start, for maxima and minima, makes new keys infinitely far away: they are in the first backup, and
    there is one in the epoch in which they come.

    ``count`` is the number of keys that only the state or only the backups have. AF-Stream takes the
    difference of the two numbers of keys, which is the same while keys only come, and 0 for two
    tables of one size that share nothing.

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
        *,
        weights: Mapping[str, float] | None = None,
        starts: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Check a table's description and give it in the form that is stored.

        Raises:
            BadValueError: A type, name, divergence, weight or start cannot be used.
        """
        schema, stored = plan_keys(keys)
        columns = parse_columns(values)
        twice = set(schema.names) & set(values)
        if twice or len(set(schema.names)) < len(schema.names):
            raise BadValueError(
                f"Table {name!r} has two columns of one name.",
                why=f"Key columns: {schema.names}; value columns: {list(values)}.",
                do="Give every column its own name.",
            )
        numeric = [column.name for column in columns if not column.flag]
        plan = {
            "kind": Table.kind,
            "name": name,
            "keys": stored,
            "values": dict(values),
            "divergence": check_norm(divergence, keyed=True),
            "weights": check_weights(weights, numeric),
        }
        return {**plan, "starts": plan_starts(columns, starts)} if starts else plan

    def _open_parts(self) -> None:
        spec = self.spec
        self._open_keys()
        self._name_columns(parse_columns(spec["values"], spec.get("starts")))
        self._cells = Cells(
            self.place, self._columns, spec["divergence"], spec["weights"], keyed=True
        )

    # Changing

    def add(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Add to the values of some keys; new keys have their columns' starts, repeated keys add up.

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
        """Keep the largest value seen per key, and of what the column starts from.

        Arguments as for ``add``.

        Raises:
            BadValueError: As for ``add``, or a column has no declared start (see ``SlotState.table``).
        """
        self._expect_starts(columns, "maximum")
        return self._change("maximum", keys, columns, unique)

    def minimum(self, keys: Any, /, *, unique: bool = False, **columns: Any) -> Array:
        """Keep the smallest value seen per key, and of what the column starts from.

        Arguments and errors as for ``maximum``.
        """
        self._expect_starts(columns, "minimum")
        return self._change("minimum", keys, columns, unique)

    def _expect_starts(self, names: Iterable[str], operation: str) -> None:
        for column in (column for column in self._columns if column.name in names):
            if column.declared or (column.flag and operation == "maximum"):
                continue
            name, lowest = column.name, operation == "minimum"
            identity, others = ("math.inf", "above") if lowest else ("-math.inf", "below")
            raise BadValueError(
                f"Column {name!r} of table {self.name!r} has no start to take a {operation} from.",
                why="A lost key starts again, and the bound must cover how far that is from its value.",
                do=f"Declare the table with starts={{{name!r}: {identity}}}: new keys are then backed "
                f"up in the epoch in which they come. A number that no value is {others} costs less.",
            )

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
        staged = stage(self._cells, rows, given, operation, unique=unique)
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

    # Reading

    def get(self, keys: Any) -> Lookup:
        """Look keys up. Argument as for ``add``; nothing is added."""
        rows = self._keys.find(self._arrays(keys))
        found = rows >= 0
        columns = {}
        for column in self._columns:
            values = np.full(len(rows), column.start, column.kind)
            values[found] = self._cells.take(rows[found], column.name)
            columns[column.name] = values
        return Lookup(found, rows, columns)

    def values(self, name: str) -> Array:
        """One column of all rows, as a read-only view to use before the next change."""
        view = self._cells.column(name)
        view.flags.writeable = False
        return view

    # Backups

    def _smaller_whole(self, entries: int) -> bool:
        return 0 < len(self) <= entries

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        if not len(self):
            yield self.rows_to_batch(slice(0, 0))

    def _load(self, batch: pa.RecordBatch) -> None:
        rows = self._rows_of_backup(batch, self.schema.names)
        columns = {column.name: batch.column(column.name) for column in self._columns}
        self._cells.load(rows, self._given(columns, len(rows)))
