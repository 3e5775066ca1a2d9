"""Keys in canonical form: Arrow columns as plain fixed-width arrays and byte strings.

Two keys are equal if and only if their canonical forms are, bit by bit. Floats are normalised as
Spark's ``GROUP BY`` does it: all NaN are one key, and -0.0 is 0.0. A null is a key like any other;
one bit for each (nested) field says which are null. Structs are taken apart into their fields.
Lists are encoded row by row, which is some hundred times slower than everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.core.errors import BadValueError
from tether.state.arrow import booleans, mask_of
from tether.state.leaves import Canonical, leaf_of
from tether.state.lists import ListLeaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.state.leaves import BytesPart, Leaf
    from tether.state.segment import Array

MOST_FIELDS = 64


class Codec:
    """Translates keys of one schema to canonical form and back.

    Args:
        fields: The key columns.

    Raises:
        BadValueError: A type cannot be part of a key, or there are more than 64 (nested) fields.
    """

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self.fields = list(fields)
        self._nodes = [_Node(field.type, field.name) for field in fields]
        self._bits = sum(node.bits for node in self._nodes)
        if not self._nodes or self._bits > MOST_FIELDS:
            raise BadValueError(
                f"A key of {self._bits} fields cannot be used.",
                why=f"A key has 1 to {MOST_FIELDS} fields, nested ones counted.",
                do="Name fewer key columns.",
            )
        self.parts: list[str] = [part for node in self._nodes for part in node.parts]
        """NumPy type of each part; "bytes" for byte strings."""
        self.null_type = next(t for t, bits in _NULL_TYPES if self._bits <= bits)

    def encode(self, arrays: Sequence[Any]) -> Canonical:
        """Key columns in canonical form.

        Raises:
            BadValueError: A column has a type that does not convert to the declared one.
        """
        count = len(arrays[0])
        parts: list[Array | BytesPart] = []
        nulls: list[tuple[int, Array]] = []
        bit = 0
        for field, node, array in zip(self.fields, self._nodes, arrays, strict=True):
            bit = node.encode(_cast(array, field), parts, nulls, bit)
        if not nulls:
            return Canonical(count, parts, None)
        mask = np.zeros(count, self.null_type)
        for position, where in nulls:
            mask |= where.astype(self.null_type) << np.array(position, self.null_type)
        return Canonical(count, parts, mask)

    def decode(self, canonical: Canonical) -> list[Any]:
        """Key columns as Arrow arrays of the declared types."""
        parts = iter(canonical.parts)
        result, bit = [], 0
        for node in self._nodes:
            array, bit = node.decode(parts, canonical, bit)
            result.append(array)
        return result


_NULL_TYPES = (("u1", 8), ("u2", 16), ("u4", 32), ("u8", 64))


class _Node:
    """One field of a key: a leaf, or a struct of nodes."""

    def __init__(self, kind: pa.DataType, name: str) -> None:
        self._type = kind
        self._children: list[_Node] = []
        self._leaf: Leaf | None = None
        if pa.types.is_struct(kind):
            self._children = [_Node(child.type, f"{name}.{child.name}") for child in kind]
        elif _is_list(kind):
            self._leaf = ListLeaf(kind, Codec([pa.field(f"{name}[]", kind.value_type)]))
        else:
            self._leaf = leaf_of(kind, name)
        self.bits: int = 1 + sum(child.bits for child in self._children)
        own = self._leaf.parts if self._leaf else []
        self.parts: list[str] = [*own, *(p for child in self._children for p in child.parts)]

    def encode(
        self, array: Any, parts: list[Array | BytesPart], nulls: list[tuple[int, Array]], bit: int
    ) -> int:
        if array.null_count:
            nulls.append((bit, mask_of(array.is_null())))
        bit += 1
        if self._leaf is not None:
            parts.extend(self._leaf.encode(array))
            return bit
        # flatten() passes the nulls of the struct on to its fields.
        for child, column in zip(self._children, array.flatten(), strict=True):
            bit = child.encode(column, parts, nulls, bit)
        return bit

    def decode(self, parts: Any, canonical: Canonical, bit: int) -> tuple[Any, int]:
        valid = None
        if canonical.nulls is not None:
            one = np.array(1 << bit, canonical.nulls.dtype)
            valid = (canonical.nulls & one) == 0
        bit += 1
        if self._leaf is not None:
            own = [next(parts) for _ in self._leaf.parts]
            return self._leaf.decode(own, valid, canonical.count), bit
        columns = []
        for child in self._children:
            column, bit = child.decode(parts, canonical, bit)
            columns.append(column)
        mask = None if valid is None else booleans(~valid)
        if not columns:
            columns_of_none = pa.nulls(canonical.count).cast(pa.struct([]))
            return columns_of_none, bit
        return pa.StructArray.from_arrays(columns, fields=list(self._type), mask=mask), bit


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _cast(array: Any, field: pa.Field) -> Any:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type.equals(field.type):
        return array
    try:
        return pc.cast(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadValueError(
            f"Key column {field.name!r} of type {array.type} does not fit {field.type}.",
            why=str(error),
            do="Cast the column before, or declare the key with this type.",
        ) from error
