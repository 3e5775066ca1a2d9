"""How far two answers are apart, key by key."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Difference(NamedTuple):
    """Distance of two answers."""

    total: float
    """Sum of the differences of all keys and columns."""
    worst: float
    """The largest of them."""
    keys: int
    """Keys in either answer."""


def compare(one: pa.Table, other: pa.Table, keys: tuple[str, ...]) -> Difference:
    """Compare the number columns of two tables by key; a key that is missing counts as zero.

    Example:
        >>> clean = pa.table({"k": ["a", "b"], "n": [5, 2]})
        >>> compare(clean, pa.table({"k": ["a", "c"], "n": [4, 1]}), ("k",))
        Difference(total=4.0, worst=2.0, keys=3)
    """
    joined = one.join(other, list(keys), join_type="full outer", right_suffix=" of the other")
    total = worst = 0.0
    for name in one.column_names:
        kind = one.schema.field(name).type
        if name in keys or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            continue
        left = pc.fill_null(joined[name].cast(pa.float64()), 0.0)
        right = pc.fill_null(joined[f"{name} of the other"].cast(pa.float64()), 0.0)
        off = pc.abs(pc.subtract(left, right))
        total += pc.sum(off).as_py() or 0.0
        worst = max(worst, pc.max(off).as_py() or 0.0)
    return Difference(total, worst, joined.num_rows)
