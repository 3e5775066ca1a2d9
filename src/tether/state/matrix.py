"""A matrix of numbers of fixed shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError
from tether.state.columns import plain
from tether.state.dense import Dense

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.segment import Array
    from tether.state.updates import Operation


class Matrix(Dense):
    """Numbers by row and column, all 0 at first: sketches, embeddings, models of several classes.

    Made by ``SlotState.matrix``. Divergence, journal and costs are a vector's (AF-Stream 2019,
    table 8 treats both alike); backups hold positions counted row by row. A batch that names an
    entry many times adds all of it up and journals the entry once.

    Example:
        A Count-Min Sketch of two rows takes in three items, each once per row:

        >>> import numpy as np
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> sketch = state.matrix("sketch", 2, 4, dtype="int64")
        >>> state.begin(0)
        >>> buckets = np.array([[0, 3, 0], [1, 2, 1]])  # one hash function per row
        >>> sketch.add(np.arange(2)[:, None], buckets, [10, 5, 10])
        >>> sketch.values.tolist(), sketch.divergence()
        ([[20, 0, 0, 5], [0, 20, 5, 0]], 50.0)
        >>> sketch += np.ones((2, 4), int)
        >>> sketch.values[0].tolist()
        [21, 1, 1, 6]
    """

    kind = "matrix"

    @staticmethod
    def plan(
        name: str,
        shape: tuple[int, int],
        dtype: str,
        divergence: str,
        weights: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Check a matrix's description and give it in the form that is stored.

        Raises:
            BadValueError: The shape, type, divergence or a weight cannot be used.
        """
        return {
            **Matrix.plan_shape(name, shape, dtype, divergence, weights),
            "rows": int(shape[0]),
            "columns": int(shape[1]),
        }

    def _open_parts(self) -> None:
        self._open_shape((self.spec["rows"], self.spec["columns"]))

    def add(self, rows: Any, columns: Any, values: Any, *, unique: bool = False) -> None:
        """Add to some entries; what is given for one entry several times adds up.

        Args:
            rows: Row of each entry, from 0 on.
            columns: Column of each entry, from 0 on.
            values: One number each. The three are broadcast against each other as NumPy does it.
            unique: Promise that no entry is repeated, which saves a sort.

        Raises:
            BadValueError: NaN, a position out of range, shapes that do not fit each other, or an
                integer overflow. Nothing is changed.
        """
        self._at("add", rows, columns, values, unique)

    def put(self, rows: Any, columns: Any, values: Any, *, unique: bool = False) -> None:
        """Set some entries; the last of repeated ones wins. Arguments as for ``add``."""
        self._at("put", rows, columns, values, unique)

    def maximum(self, rows: Any, columns: Any, values: Any, *, unique: bool = False) -> None:
        """Raise some entries to at least these values. Arguments as for ``add``."""
        self._at("maximum", rows, columns, values, unique)

    def minimum(self, rows: Any, columns: Any, values: Any, *, unique: bool = False) -> None:
        """Lower some entries to at most these values. Arguments as for ``add``."""
        self._at("minimum", rows, columns, values, unique)

    def add_rows(self, rows: Any, values: Any, *, unique: bool = False) -> None:
        """Add to whole rows; repeated rows add up.

        Args:
            rows: Row numbers.
            values: One line of numbers for each, or one line for all.
            unique: Promise that no row is repeated, which saves a sort.

        Raises:
            BadValueError: As for ``add``.
        """
        self._lines("add", rows, values, unique)

    def put_rows(self, rows: Any, values: Any, *, unique: bool = False) -> None:
        """Set whole rows; the last of repeated ones wins. Arguments as for ``add_rows``."""
        self._lines("put", rows, values, unique)

    def _lines(self, operation: Operation, rows: Any, values: Any, unique: bool) -> None:
        lines = self._positions(rows, self.shape[0], "index of a row").reshape(-1, 1)
        self._at(operation, lines, np.arange(self.shape[1]), values, unique)

    def _at(self, operation: Operation, rows: Any, columns: Any, values: Any, unique: bool) -> None:
        down = self._positions(rows, self.shape[0], "index of a row")
        across = self._positions(columns, self.shape[1], "index of a column")
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            if values.null_count:
                raise BadValueError(
                    f"The values for matrix {self.name!r} cannot be used.",
                    why="There are nulls among them.",
                    do="Fill or drop nulls first.",
                )
            values = plain(values)
        given = np.asarray(values)
        shape = self._common(down, across, given)
        positions = np.broadcast_to(down * self.shape[1] + across, shape).reshape(-1)
        amounts = given if given.ndim == 0 else np.broadcast_to(given, shape).reshape(-1)
        self._change(operation, positions, amounts, unique=unique)

    def _common(self, down: Array, across: Array, given: Array) -> tuple[int, ...]:
        try:
            positions = np.broadcast_shapes(down.shape, across.shape)
            shape = np.broadcast_shapes(positions, given.shape)
        except ValueError:
            shape = positions = (-1,)
        if shape != positions and given.size != 1:
            shape = (-1,)  # more values than entries: some would be taken twice
        if -1 in shape:
            raise BadValueError(
                f"Matrix {self.name!r} got arrays that do not fit each other.",
                why=f"Rows have the shape {down.shape}, columns {across.shape}, "
                f"values {given.shape}.",
                do="Give one row, one column and one value for each entry.",
            )
        return shape
