"""A set of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError
from tether.state.arrow import booleans
from tether.state.cells import Cells
from tether.state.columns import Column, as_values
from tether.state.header import MEMBERS, PACKED, PEAK, PENDING_PART, ROWS
from tether.state.keyed import Keyed, plan_keys
from tether.state.primitive import BATCH_ROWS
from tether.state.updates import Groups, Operation, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tether.state.segment import Array

_MEMBER = Column("member", "int64", 0)
_WORTH_PACKING = 4096  # rows


class Set(Keyed):
    """Keys that are in, or not: what was seen, who is active, which ids to refuse.

    Made by ``SlotState.set``. Members are of any type that a table's keys can have. Its divergence
    is ``count``: the number of keys that are in the set and not in the backups, or the other way
    round. AF-Stream 2019 (table 8) takes the difference of the *numbers* of keys, which is never
    more than this and is 0 for two sets that share nothing but their size.

    A member that leaves keeps its row until half of all rows are of no use; then the set packs
    itself, which costs time for all rows, but less than a constant for each discarded member.

    Example:
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> seen = state.set("seen", {"user": pa.string()})
        >>> state.begin(0)
        >>> seen.add(pa.array(["ann", "bob", "ann"])).tolist()
        [True, True, False]
        >>> seen.discard(pa.array(["bob", "cid"])).tolist()
        [True, False]
        >>> seen.contains(pa.array(["ann", "bob"])).tolist(), len(seen)
        ([True, False], 1)
        >>> seen.divergence(exact=True)
        1.0
    """

    kind = "set"

    @staticmethod
    def plan(
        name: str, keys: pa.Schema | Mapping[str, pa.DataType], divergence: str
    ) -> dict[str, Any]:
        """Check a set's description and give it in the form that is stored.

        Raises:
            BadValueError: A type, name or divergence cannot be used.
        """
        schema, stored = plan_keys(keys)
        if _MEMBER.name in schema.names or len(set(schema.names)) < len(schema.names):
            raise BadValueError(
                f"The set {name!r} cannot have the key columns {schema.names}.",
                why=f"Names are used once, and {_MEMBER.name!r} by the set itself.",
                do="Rename a column.",
            )
        if divergence != "count":
            raise BadValueError(
                f"There is no divergence {divergence!r} for a set.", do="Use count."
            )
        return {"kind": Set.kind, "name": name, "keys": stored, "divergence": divergence}

    def _open_parts(self) -> None:
        self._open_keys()
        self.schema = self.key_schema.append(pa.field(_MEMBER.name, pa.bool_(), nullable=False))
        # Membership as a number of 0 or 1: then the l1 distance counts the keys that differ.
        self._cells = Cells(self.place, (_MEMBER,), "l1", {}, keyed=False)

    def __len__(self) -> int:
        return int(self.place.page.words[MEMBERS])

    def changed(self) -> Array:
        """Row numbers of keys that came or left in this epoch; all, if the set packed itself."""
        return super().changed()

    # Changing

    def add(self, keys: Any) -> Array:
        """Put keys in.

        Args:
            keys: As for a table; one array, where there is a single key column.

        Returns:
            Which items of the batch were new: not in the set, and the first of their key here.
        """
        stamp = self.place.stamp()
        arrays = self._arrays(self._columns_of(keys))
        self._pack(stamp)
        words = self.place.page.words
        existing = words[ROWS]
        rows, after = self._keys.upsert(arrays)
        if after > existing:
            self._cells.lay(existing, after, stamp)
            words[ROWS] = after
            words[PEAK] = 1
        absent = (self._cells.take(rows, "member") == 0).nonzero()[0]
        return self._switch("put", rows, absent, 1, stamp)

    def discard(self, keys: Any) -> Array:
        """Take keys out; those that are not in are passed over. Argument as for ``add``.

        Returns:
            Which items of the batch took a member out.
        """
        stamp = self.place.stamp()
        rows = self._keys.find(self._arrays(self._columns_of(keys)))
        present = (rows >= 0).nonzero()[0]
        present = present[self._cells.take(rows[present], "member") == 1]
        return self._switch("put", rows, present, 0, stamp)

    def _switch(
        self, operation: Operation, rows: Array, items: Array, value: int, stamp: int
    ) -> Array:
        first = np.zeros(len(rows), bool)
        if not len(items):
            return first
        some = rows[items]
        groups = Groups.of(some)
        if groups is not None:
            some, items = groups.rows, items[groups.order[groups.starts]]
        first[items] = True
        given = {"member": np.full(len(some), value)}
        staged = stage(self._cells, some, given, operation, unique=True)
        self._cells.apply(staged, stamp)
        self.place.page.words[MEMBERS] += len(some) if value else -len(some)
        return first

    def _columns_of(self, keys: Any) -> Any:
        return [keys] if isinstance(keys, (pa.ChunkedArray, np.ndarray)) or _plain(keys) else keys

    def _pack(self, stamp: int) -> None:
        """Give up rows that are neither in the set nor in the backups, if they are many."""
        words = self.place.page.words
        rows = words[ROWS]
        if rows < max(_WORTH_PACKING, 2 * words[PACKED]) or 2 * len(self) > rows:
            return
        if words[PENDING_PART]:  # what is being written knows its entries by their rows
            return
        kept, carried = self._cells.carry()
        keys, members = self._keys.decode(kept), len(self)
        self._start_generation()
        if len(kept):
            self._keys.upsert(keys)
            self._cells.lay_carried(carried, stamp)
        words[PEAK], words[MEMBERS], words[PACKED] = 1, members, len(kept)

    # Reading

    def contains(self, keys: Any) -> Array:
        """Whether each key is in the set. Argument as for ``add``."""
        rows = self._keys.find(self._arrays(self._columns_of(keys)))
        result: Array = rows >= 0
        result[result] = self._cells.take(rows[result], "member") == 1
        return result

    def batches(self, max_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """All members, in batches of at most ``max_rows``."""
        rows = self._cells.column("member").nonzero()[0]
        for start in range(0, len(rows), max_rows):
            yield self._keys_of(rows[start : start + max_rows])

    def rows_to_batch(self, rows: Array | slice) -> pa.RecordBatch:
        """Keys of some rows, copied, and whether each is a member."""
        members = booleans(self._cells.take(rows, "member") == 1)
        return pa.RecordBatch.from_arrays([*self._keys.decode(rows), members], schema=self.schema)

    def _keys_of(self, rows: Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._keys.decode(rows), schema=self.key_schema)

    # Backups

    def _smaller_whole(self, entries: int) -> bool:
        return len(self) <= entries and entries > 0

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()
        if not len(self):
            yield self._keys_of(np.zeros(0, np.intp))

    def _load(self, batch: pa.RecordBatch) -> None:
        names = self.key_schema.names
        rows = self._rows_of_backup(batch, names, self.schema.names)
        if _MEMBER.name in batch.schema.names:
            members = as_values(_MEMBER, batch.column(_MEMBER.name), len(rows))
        else:
            members = np.ones(len(rows), np.int64)
        before = int(self._cells.take(rows, "member").sum())
        self._cells.load(rows, {"member": members})
        self.place.page.words[MEMBERS] += int(members.sum()) - before


def _plain(keys: Any) -> bool:
    return isinstance(keys, pa.Array) and not isinstance(keys, pa.StructArray)
