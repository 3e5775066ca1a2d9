"""How an operator declares its state: one method for each kind of primitive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from tether.state.matrix import Matrix
from tether.state.number import Number
from tether.state.objects import Object, StateObject
from tether.state.sets import Set
from tether.state.table import Table
from tether.state.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tether.state.primitive import Primitive

T = TypeVar("T", bound=StateObject)

KINDS: dict[str, type[Primitive]] = {
    kind.kind: kind for kind in (Matrix, Number, Object, Set, Table, Vector)
}
"""Every kind of primitive, by the name under which it is stored."""


class Declarations(ABC):
    """Makes primitives by name. Declaring one again, with the same description, gives the same."""

    @abstractmethod
    def primitive(self, spec: Mapping[str, Any]) -> Primitive:
        """The primitive with this stored description, made if it is not there yet."""

    def number(
        self,
        name: str,
        *,
        dtype: str = "float64",
        divergence: str = "difference",
        weights: Mapping[str, float] | None = None,
    ) -> Number:
        """The number of that name, made if it is not there yet.

        Args:
            name: Name within the slot.
            dtype: ``int64`` or ``float64``.
            divergence: ``difference``.
            weights: ``{"value": factor}`` of the difference; 1 if not given.

        Raises:
            BadValueError: A description that cannot be used, or that differs from the one before.
        """
        made = self.primitive(Number.plan(name, dtype, divergence, weights))
        assert isinstance(made, Number)
        return made

    def vector(
        self,
        name: str,
        size: int,
        *,
        dtype: str = "float64",
        divergence: str = "l1",
        weights: Mapping[str, float] | None = None,
    ) -> Vector:
        """The vector of that name, made if it is not there yet.

        Args:
            name: Name within the slot.
            size: Number of values.
            dtype: ``int64`` or ``float64``.
            divergence: ``l1``, ``l2`` or ``max``.
            weights: ``{"value": factor}`` of its differences; 1 if not given.

        Raises:
            BadValueError: A description that cannot be used, or that differs from the one before.
        """
        made = self.primitive(Vector.plan(name, size, dtype, divergence, weights))
        assert isinstance(made, Vector)
        return made

    def table(
        self,
        name: str,
        keys: pa.Schema | Mapping[str, pa.DataType],
        values: Mapping[str, str],
        *,
        divergence: str = "l1",
        weights: Mapping[str, float] | None = None,
        starts: Mapping[str, float] | None = None,
    ) -> Table:
        """The table of that name, made if it is not there yet.

        Args:
            name: Name within the slot.
            keys: Key columns with their Arrow types.
            values: Value columns with their types: ``int64``, ``float64``, or ``uint8`` for flags.
            divergence: ``l1``, ``l2``, ``max`` or ``count``.
            weights: Factor of each column's differences; 1 for columns not named, 0 to leave out.
            starts: What a column holds for a key that was never seen, which all changes begin from; 0
                for columns not named. ``maximum`` and ``minimum`` need it. With ``math.inf`` for a
                minimum, or ``-math.inf`` for a maximum (the largest and smallest number of an
                ``int64``), every new key is backed up in the epoch in which it comes; with a finite
                one, as 0 for a maximum of what is never negative, it counts as any difference.

        Raises:
            BadValueError: A description that cannot be used, or that differs from the one before.
        """
        made = self.primitive(
            Table.plan(name, keys, values, divergence, weights=weights, starts=starts)
        )
        assert isinstance(made, Table)
        return made

    def matrix(
        self,
        name: str,
        rows: int,
        columns: int,
        *,
        dtype: str = "float64",
        divergence: str = "l1",
        weights: Mapping[str, float] | None = None,
    ) -> Matrix:
        """The matrix of that name, made if it is not there yet.

        Args:
            name: Name within the slot.
            rows: Number of rows.
            columns: Number of columns.
            dtype: ``int64`` or ``float64``.
            divergence: ``l1``, ``l2`` or ``max``, over all entries.
            weights: ``{"value": factor}`` of its differences; 1 if not given.

        Raises:
            BadValueError: A description that cannot be used, or that differs from the one before.
        """
        made = self.primitive(Matrix.plan(name, (rows, columns), dtype, divergence, weights))
        assert isinstance(made, Matrix)
        return made

    def set(
        self,
        name: str,
        keys: pa.Schema | Mapping[str, pa.DataType],
        *,
        divergence: str = "count",
    ) -> Set:
        """The set of that name, made if it is not there yet.

        Args:
            name: Name within the slot.
            keys: Key columns with their Arrow types, as for a table.
            divergence: ``count``: the number of keys in only one of the set and its backup.

        Raises:
            BadValueError: A description that cannot be used, or that differs from the one before.
        """
        made = self.primitive(Set.plan(name, keys, divergence))
        assert isinstance(made, Set)
        return made

    def object(self, name: str, new: T, *, increasing: bool = False) -> Object[T]:
        """The object of that name; ``new`` takes over its stored image, if there is one.

        Args:
            name: Name within the slot.
            new: A new object with ``state_divergence``, ``backup_state`` and ``recover_state``.
            increasing: Promise that its divergence only grows between backups, as a count of
                updates does; it is an error if it then shrinks.

        Raises:
            BadValueError: The object lacks a method, or was declared otherwise before.
        """
        kind = getattr(new, "state_type", type(new).__qualname__)
        made = self.primitive(Object.plan(name, kind, increasing=increasing))
        assert isinstance(made, Object)
        made.bind(new)
        return made
