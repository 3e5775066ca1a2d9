"""Numbers in a fixed shape, addressed by position: what vectors and matrices have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state.arrow import wrapped
from tether.state.cells import Cells
from tether.state.columns import Column, as_values, plain
from tether.state.entries import CellPrimitive
from tether.state.header import BACKED, ROWS
from tether.state.norms import check_norm, check_weights
from tether.state.primitive import BATCH_ROWS
from tether.state.rows import Rows, count_of
from tether.state.updates import Operation, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tether.state.segment import Array

_Self = TypeVar("_Self", bound="Dense")


class Dense(CellPrimitive):
    """Numbers that all exist from the beginning, as zeros, in the order of their positions."""

    shape: tuple[int, ...]

    @classmethod
    def plan_shape(
        cls,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        divergence: str,
        weights: Mapping[str, float] | None,
    ) -> dict[str, Any]:
        """The stored description, but for the shape.

        Raises:
            BadValueError: The shape, type, divergence or a weight cannot be used.
        """
        whole = all(isinstance(n, (int, np.integer)) and n >= 1 for n in shape)
        if not whole or math.prod(shape) >= 1 << 31 or dtype not in ("int64", "float64"):
            size = " by ".join(str(n) for n in shape)
            raise BadValueError(
                f"A {cls.kind} of {size} values of type {dtype!r} cannot be made.",
                why="It has from 1 to 2**31 - 1 numbers.",
                do="Give sizes of at least 1 and a dtype of int64 or float64.",
            )
        return {
            "kind": cls.kind,
            "name": name,
            "dtype": dtype,
            "divergence": check_norm(divergence, keyed=False),
            "weights": check_weights(weights, ["value"]),
        }

    def _open_shape(self, shape: tuple[int, ...]) -> None:
        spec = self.spec
        self.shape, self.size = shape, math.prod(shape)
        self._column = Column("value", spec["dtype"], 0)
        self._cells = Cells(
            self.place, (self._column,), spec["divergence"], spec["weights"], keyed=False
        )

    def create(self) -> None:
        """Make all values, as zeros that the backups need not know."""
        self._cells.lay(0, self.size, 0)
        self.place.page.words[ROWS] = self.place.page.words[BACKED] = self.size

    def describe(self) -> dict[str, Any]:
        """Kind, size, type and divergence as plain values."""
        return dict(self.spec)

    @property
    def values(self) -> Array:
        """All values in their shape, as a read-only view that follows later changes."""
        view = self._cells.column("value").reshape(self.shape)
        view.flags.writeable = False
        return view

    def add_all(self, values: Any) -> None:
        """Add an array of the same shape, or one number, to all entries.

        Raises:
            BadValueError: Another shape, NaN, or an integer overflow. Nothing is changed.
        """
        self._change("add", slice(0, self.size), self._whole(values), unique=True)

    def assign(self, values: Any) -> None:
        """Set all entries, from an array of the same shape or one number."""
        self._change("put", slice(0, self.size), self._whole(values), unique=True)

    def clear(self) -> None:
        """Set all entries to 0, as at the end of a window."""
        rows = np.flatnonzero(self.values)
        self._change("put", rows, 0, unique=True)

    def __iadd__(self: _Self, values: Any) -> _Self:
        self.add_all(values)
        return self

    def __isub__(self: _Self, values: Any) -> _Self:
        self.add_all(np.negative(self._whole(values)).reshape(self.shape))
        return self

    def __imul__(self: _Self, factor: Any) -> _Self:
        if not self._column.floating:
            raise BadValueError(
                f"The {self.kind} {self.name!r} of integers cannot be multiplied in place.",
                why="Products of integers may wrap around unnoticed.",
                do="Declare it float64, or assign the product.",
            )
        if not (np.abs(factor) <= 1).all():
            raise BadValueError(
                f"The {self.kind} {self.name!r} cannot be multiplied in place by more than 1.",
                why="An error that a loss has left in it would grow too, beyond the bound.",
                do="Multiply where values are read; or assign the product, and declare Operator.growth.",
            )
        with np.errstate(invalid="ignore"):
            self.assign(self.values * np.asarray(factor))
        return self

    def _whole(self, values: Any) -> Array:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = plain(values)
        array = np.asarray(values)
        if array.ndim and array.shape != self.shape:
            raise BadValueError(
                f"The {self.kind} {self.name!r} got an array of shape {array.shape}.",
                why=f"Its own shape is {self.shape}; nothing is broadcast but a single number.",
                do="Give one number for every entry.",
            )
        return np.broadcast_to(array, self.shape).reshape(-1)

    def _change(self, operation: Operation, rows: Rows, values: Any, *, unique: bool) -> None:
        stamp = self.place.stamp()
        given = {"value": as_values(self._column, values, count_of(rows))}
        staged = stage(self._cells, rows, given, operation, unique=unique)
        self._cells.apply(staged, stamp)

    def _positions(self, index: Any, size: int, what: str = "index") -> Array:
        """Positions along one side, checked.

        Raises:
            BadValueError: They are not integers from 0 on and below ``size``.
        """
        if isinstance(index, (pa.Array, pa.ChunkedArray)):
            index = plain(index)
        positions = np.asarray(index)
        if positions.size == 0:
            return np.zeros(positions.shape, np.intp)
        kind = positions.dtype.kind
        if kind not in "iu" or int(positions.min()) < 0 or int(positions.max()) >= size:
            raise BadValueError(
                f"{self.kind.capitalize()} {self.name!r} got an {what} that it does not have.",
                why=f"An {what} is an integer from 0 to {size - 1}.",
                do=f"Check the {what} column, or make the {self.kind} larger.",
            )
        return positions.astype(np.intp, copy=False)

    # Backups

    def _smaller_whole(self, entries: int) -> bool:
        return 2 * entries >= self.size  # without its index an entry takes half the bytes

    def _batches(self, rows: Array) -> Iterator[pa.RecordBatch]:
        rows = np.sort(rows)  # so that their gaps are small, and take few bytes
        for start in range(0, len(rows), BATCH_ROWS):
            some = rows[start : start + BATCH_ROWS]
            yield pa.RecordBatch.from_pydict(
                {"index": wrapped(some), "value": wrapped(self._cells.take(some, "value"))}
            )

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": wrapped(self.values.reshape(-1).copy())})

    def _load(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        if "value" not in names or ("index" not in names and batch.num_rows != self.size):
            raise BackupUnreadableError(
                f"A backup of {self.kind} {self.name!r} does not fit it.",
                why=f"Its columns are {names} and it has {batch.num_rows} rows.",
                do="Restore with the program that wrote the backup.",
            )
        if "index" in names:
            rows = self._positions(batch.column("index"), self.size)
        else:
            rows = np.arange(self.size)
        self._cells.load(rows, {"value": as_values(self._column, batch.column("value"), len(rows))})

    def _empty(self) -> None:
        self._cells.load(np.arange(self.size), {"value": np.zeros(self.size, self._column.kind)})
