"""A vector of numbers of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.state.dense import Dense

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.updates import Operation


class Vector(Dense):
    """Numbers by index, all 0 at first: model weights, histograms, one-row sketches.

    Made by ``SlotState.vector``. Every change is journaled (a retried epoch starts from the same
    values) and moves the divergence (``l1``, ``l2`` or ``max``) by what it changes; see AF-Stream
    2019, table 8. Integers never wrap around: an overflow raises and changes nothing. A change
    costs time for the entries that it touches; ``add_all``, ``assign`` and ``+=`` touch all.

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
        return {
            **Vector.plan_shape(name, (size,), dtype, divergence, weights),
            "size": int(size),
        }

    def _open_parts(self) -> None:
        self._open_shape((self.spec["size"],))

    def add(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Add to some entries; repeated indexes add up.

        Args:
            index: Positions from 0 on, or None for all of them in order.
            values: One number each, or one for all.
            unique: Promise that no index is repeated, which saves a sort.

        Raises:
            BadValueError: NaN, an index out of range, or an integer overflow. Nothing is changed.
        """
        self._at("add", index, values, unique)

    def put(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Set some entries; the last of repeated indexes wins. Arguments as for ``add``."""
        self._at("put", index, values, unique)

    def maximum(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Raise some entries to at least these values. Arguments as for ``add``."""
        self._at("maximum", index, values, unique)

    def minimum(self, index: Any, values: Any, *, unique: bool = False) -> None:
        """Lower some entries to at most these values. Arguments as for ``add``."""
        self._at("minimum", index, values, unique)

    def _at(self, operation: Operation, index: Any, values: Any, unique: bool) -> None:
        if index is None:
            self._change(operation, slice(0, self.size), values, unique=True)
        else:
            rows = self._positions(index, self.size).reshape(-1)
            self._change(operation, rows, values, unique=unique)
