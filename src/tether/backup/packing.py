"""Numbers of a frame in as few bytes as hold them, and exactly the same numbers when it is read.

State is kept in numbers of 64 bits, few of which need so many: counters and gaps of positions are small,
and where a policy lets backups be rounded, a number is a small multiple of a power of two. What is
written is then one, two or four bytes a number. Nothing is rounded here: a column that would not come
back bit by bit is written as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tether.core.numbers import STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_PACKED = b"tether.packed"
"""Metadata of a packed column: how."""

_WHOLE, _GAPS, _FLOATS = b"whole", b"gaps", b"floats"
"""Whole numbers; those that only rise, by their gaps; floats, by their number of steps."""

WORTH_BYTES = 512
"""Fewest bytes that a column must save; to say how it is packed takes some itself."""

_WIDTHS = ((1, pa.int8()), (2, pa.int16()), (4, pa.int32()))
_EXPONENTS = range(-1000, 900)


class _Plan(NamedTuple):
    """How a column is packed."""

    kind: pa.DataType
    exponent: int | None
    """Of a column of floats."""
    gaps: bool
    """Whether what is written is by how much each number is above the one before."""


def packed(batches: Sequence[pa.RecordBatch]) -> tuple[Sequence[pa.RecordBatch], bool]:
    """The batches of a part in fewer bytes where that saves many, and whether it does.

    Example:
        >>> batch = pa.record_batch({"n": pa.array(range(1000))})
        >>> short, changed = packed([batch])
        >>> changed, short[0].schema.field("n").type, unpacked(short[0]).equals(batch)
        (True, DataType(int8), True)
    """
    if not batches:
        return batches, False
    schema = batches[0].schema
    plans = {at: plan for at in range(len(schema)) if (plan := _plan(batches, at)) is not None}
    if not plans:
        return batches, False
    fields = [
        _packed_field(field, plans[at]) if at in plans else field for at, field in enumerate(schema)
    ]
    target = pa.schema(fields, metadata=schema.metadata)
    return [_packed_batch(batch, plans, target) for batch in batches], True


def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it was.

    Raises:
        ValueError: It says of itself what cannot be.
    """
    schema = batch.schema
    if not any(_PACKED in (field.metadata or {}) for field in schema):
        return batch
    pairs = [_unpacked(*pair) for pair in zip(schema, batch.columns, strict=True)]
    fields = pa.schema([field for field, _ in pairs], metadata=schema.metadata)
    return pa.RecordBatch.from_arrays([column for _, column in pairs], schema=fields)


def _unpacked(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    told = dict(field.metadata or {})
    kind = told.pop(_PACKED, None)
    if kind is None:
        return field, column
    values = _numbers(column, f"i{field.type.bit_width // 8}")
    if kind == _FLOATS:
        exponent = int(told.pop(STEP))
        if exponent not in _EXPONENTS:
            raise ValueError(f"a step of 2**{exponent} is impossible")
        values = np.ldexp(values.astype(np.float64), exponent)
    elif kind == _GAPS:
        values = np.cumsum(values, dtype=np.int64)
    elif kind == _WHOLE:
        values = values.astype(np.int64)
    else:
        raise ValueError(f"{kind!r} is no way to pack numbers")
    wide = _column(values)
    return pa.field(field.name, wide.type, field.nullable, told or None), wide


def _plan(batches: Sequence[pa.RecordBatch], at: int) -> _Plan | None:
    field = batches[0].schema.field(at)
    rows = sum(batch.num_rows for batch in batches)
    if 7 * rows < WORTH_BYTES or any(batch.column(at).null_count for batch in batches):
        return None
    exponent = None
    if pa.types.is_float64(field.type) and STEP in (field.metadata or {}):
        exponent = int(field.metadata[STEP])
        if exponent not in _EXPONENTS:
            return None
    elif not pa.types.is_int64(field.type):
        return None
    width, kind = 8, pa.int64()
    steps = exponent is not None
    plan = None
    for gaps in (False,) if steps else (False, True):
        columns = [_whole(batch, at, exponent, gaps=gaps) for batch in batches]
        if any(column is None for column in columns):
            continue
        least = min(int(c.min()) for c in columns if c is not None and len(c))
        most = max(int(c.max()) for c in columns if c is not None and len(c))
        for narrow, kind in _WIDTHS:
            if -(1 << 8 * narrow - 1) <= least and most < 1 << 8 * narrow - 1:
                if narrow < width and (8 - narrow) * rows >= WORTH_BYTES:
                    width, plan = narrow, _Plan(kind, exponent, gaps)
                break
    return plan


def _whole(
    batch: pa.RecordBatch, at: int, exponent: int | None, *, gaps: bool
) -> NDArray[np.int64] | None:
    """A column as whole numbers; None if that would not give back the same bits."""
    if exponent is None:
        values: NDArray[np.int64] = _numbers(batch.column(at), "i8")
        if not gaps or not len(values):
            return values
        found = np.diff(values, prepend=0)
        return found if found.min() >= 0 else None  # nor where a difference has wrapped around
    given = _numbers(batch.column(at), "f8")
    with np.errstate(over="ignore"):
        steps = np.ldexp(given, -exponent)
    if not (np.abs(steps) < 1 << 31).all():  # nor NaN
        return None
    whole = steps.astype(np.int64)
    back = np.ldexp(whole.astype(np.float64), exponent)
    return whole if np.array_equal(back.view(np.int64), given.view(np.int64)) else None


def _packed_field(field: pa.Field, plan: _Plan) -> pa.Field:
    kind = _FLOATS if plan.exponent is not None else _GAPS if plan.gaps else _WHOLE
    return field.with_type(plan.kind).with_metadata({**(field.metadata or {}), _PACKED: kind})


def _packed_batch(
    batch: pa.RecordBatch, plans: dict[int, _Plan], schema: pa.Schema
) -> pa.RecordBatch:
    columns = list(batch.columns)
    for at, plan in plans.items():
        whole = _whole(batch, at, plan.exponent, gaps=plan.gaps)
        assert whole is not None
        columns[at] = _column(whole.astype(f"i{plan.kind.bit_width // 8}"))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _numbers(column: pa.Array, dtype: str) -> NDArray[Any]:
    """The numbers of a column without nulls, where they are."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype)
    found: NDArray[Any] = np.frombuffer(buffer, dtype)
    return found[column.offset : column.offset + len(column)]


def _column(values: NDArray[Any]) -> pa.Array:
    """The numbers as a column, without the detour by pandas that ``pa.array`` makes."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
