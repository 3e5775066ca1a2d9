"""A vector of numbers of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state.arrow import wrapped
from tether.state.cells import Cells
from tether.state.columns import Column, as_values, plain
from tether.state.divergence import check_norm, check_weights
from tether.state.header import BACKED, ROWS
from tether.state.primitive import BATCH_ROWS, CellPrimitive
from tether.state.updates import Operation, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tether.state.segment import Array


class Vector(CellPrimitive):
    """Numbers by index, all 0 at first: sketches, model weights, histograms.

    Made by ``SlotState.vector``. Every change is journaled (a retried epoch starts from the same
    values) and moves the divergence (``l1``, ``l2`` or ``max``) by what it changes; see AF-Stream
    2019, table 8. Integers never wrap around: an overflow raises and changes nothing.

    Example:
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> histogram = state.vector("histogram", 4, dtype="int64")
        >>> state.begin(0)
        >>> histogram.add([1, 3, 1], [10, 5, 10])
        >>> histogram.values.tolist(), histogram.divergence()
        ([0, 20, 0, 5], 25.0)
        >>> part = histogram.export(target=5)
        >>> part.batches[0].to_pydict(), part.divergence_after
        ({'index': [1], 'value': [20]}, 5.0)
    """

    kind = "vector"

    @staticmethod
    def plan(
        name: str,
        size: int,
        dtype: str,
        divergence: str,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Check a vector's description and give it in the form that is stored.

        Raises:
            BadValueError: The size, type, divergence or a weight cannot be used.
        """
        if size < 1 or dtype not in ("int64", "float64"):
            raise BadValueError(
                f"A vector of {size} values of type {dtype!r} cannot be made.",
                do="Give a size of at least 1 and a dtype of int64 or float64.",
            )
        return {
            "kind": Vector.kind,
            "name": name,
            "size": int(size),
            "dtype": dtype,
            "divergence": check_norm(divergence, keyed=False),
            "weights": check_weights(weights, ["value"]),
        }

    def _open_parts(self) -> None:
        spec = self.spec
        column = Column("value", spec["dtype"], 0)
        self._column = column
        self.size: int = spec["size"]
        self._cells = Cells(self.place, (column,), spec["divergence"], spec["weights"], keyed=False)

    def create(self) -> None:
        """Make all values, as zeros that the backups need not know."""
        self._cells.lay(0, self.size, 0)
        self.place.page.words[ROWS] = self.place.page.words[BACKED] = self.size

    def describe(self) -> dict[str, Any]:
        """Kind, size, type and divergence as plain values."""
        return dict(self.spec)

    @property
    def values(self) -> Array:
        """All values, as a read-only view that follows later changes."""
        view = self._cells.column("value")
        view.flags.writeable = False
        return view

    def add(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Add to some entries; repeated indexes add up.

        Args:
            index: Positions from 0 on, or None for all of them in order.
            values: One number each, or one for all.
            unique: Promise that no index is repeated, which saves a sort.

        Raises:
            BadValueError: NaN, an index out of range, or an integer overflow. Nothing is changed.
        """
        self._change("add", index, values, unique)

    def put(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Set some entries; the last of repeated indexes wins. Arguments as for ``add``."""
        self._change("put", index, values, unique)

    def maximum(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Raise some entries to at least these values. Arguments as for ``add``."""
        self._change("maximum", index, values, unique)

    def minimum(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Lower some entries to at most these values. Arguments as for ``add``."""
        self._change("minimum", index, values, unique)

    def clear(self) -> None:
        """Set all entries to 0, as at the end of a window."""
        rows = np.flatnonzero(self.values)
        self._change("put", rows, 0, unique=True)

    def _change(self, operation: Operation, index: Any, values: Any, unique: bool) -> None:
        stamp = self.place.stamp()
        rows = np.arange(self.size) if index is None else self._rows(index)
        given = {"value": as_values(self._column, values, len(rows))}
        staged = stage(
            self._cells,
            rows,
            given,
            operation,
            unique=unique or index is None,
            first_new=self.size,
        )
        self._cells.apply(staged, stamp)

    def _rows(self, index: Any) -> Array:
        if isinstance(index, pa.Array):
            index = plain(index)
        rows = np.asarray(index)
        if rows.ndim == 0:
            rows = rows.reshape(1)
        if len(rows) == 0:
            return np.zeros(0, np.intp)
        if rows.dtype.kind not in "iu" or int(rows.min()) < 0 or int(rows.max()) >= self.size:
            raise BadValueError(
                f"Vector {self.name!r} got an index that it does not have.",
                why=f"Indexes are integers from 0 to {self.size - 1}.",
                do="Check the index column, or make the vector larger.",
            )
        return rows.astype(np.intp, copy=False)

    def _smaller_whole(self, entries: int) -> bool:
        return 2 * entries >= self.size  # without its index an entry takes half the bytes

    def _batches(self, rows: Array) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), BATCH_ROWS):
            some = rows[start : start + BATCH_ROWS]
            yield pa.RecordBatch.from_pydict(
                {"index": wrapped(some), "value": wrapped(self._cells.take(some, "value"))}
            )

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": wrapped(self.values.copy())})

    def _load(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        if "value" not in names or ("index" not in names and batch.num_rows != self.size):
            raise BackupUnreadableError(
                f"A backup of vector {self.name!r} does not fit it.",
                why=f"Its columns are {names} and it has {batch.num_rows} rows.",
                do="Restore with the program that wrote the backup.",
            )
        rows = self._rows(batch.column("index")) if "index" in names else np.arange(self.size)
        self._cells.load(rows, {"value": as_values(self._column, batch.column("value"), len(rows))})

    def _empty(self) -> None:
        self._cells.load(np.arange(self.size), {"value": np.zeros(self.size, self._column.kind)})
