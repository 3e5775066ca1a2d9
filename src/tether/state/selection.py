"""Which entries a partial backup must hold: the worst ones, and no more than needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tether.state.segment import Array

_BUCKET_SHIFT = 48  # sign, exponent and four bits of the mantissa of a float64


def worst_first(amounts: Array, limit: float) -> Array:
    """Choose the fewest entries such that those left out sum to at most ``limit``.

    Sorting all entries would cost more than reading them. The top bits of a non-negative float
    sort like the float itself, so one histogram finds the narrow range of sizes in which the cut
    lies, and only the entries in that range are sorted.

    Args:
        amounts: What each entry adds; not negative.
        limit: Largest sum that may remain.

    Returns:
        Mask of the chosen entries.

    Example:
        >>> worst_first(np.array([1.0, 9.0, 3.0, 2.0]), limit=3.0).tolist()
        [False, True, True, False]
    """
    if limit <= 0:
        return amounts > 0
    buckets = amounts.view(np.int64) >> _BUCKET_SHIFT
    sums = np.bincount(buckets, weights=amounts)
    kept = np.cumsum(sums)
    cut = int(np.searchsorted(kept, limit, side="right"))
    if cut == len(kept):
        return np.zeros(len(amounts), bool)
    chosen: Array = buckets > cut
    inside = np.flatnonzero(buckets == cut)
    order = inside[np.argsort(amounts[inside])]
    below = kept[cut - 1] if cut else 0.0
    stay = np.searchsorted(below + np.cumsum(amounts[order]), limit, side="right")
    chosen[order[stay:]] = True
    return chosen
