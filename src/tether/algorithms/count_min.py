"""The Count-Min Sketch: sums per key in fixed memory, never too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.algorithms.hashing import mixed
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tether.algorithms.hashing import Hashes

    Cells = NDArray[np.int64]


class CountMin:
    """Where the keys' sums lie in ``depth`` rows of ``width`` counters each.

    Every key adds to one counter per row; the smallest of them is its estimate. It is never below
    the true sum, and is above it by more than ``2 / width`` of the sum over all keys only with
    probability ``2 ** -depth`` (Cormode and Muthukrishnan; AF-Stream 2019, appendix A.1).

    The counters themselves are the caller's: a vector of ``size`` numbers.

    Args:
        depth: Rows: each halves the probability of a large error.
        width: Counters per row: twice as many halve the error.
        seed: Another seed, other collisions.

    Example:
        >>> sketch = CountMin(4, 100)
        >>> hashes = np.arange(1000, dtype=np.uint64)
        >>> cells = sketch.cells(hashes)
        >>> counters = sketch.folded(cells, np.ones(1000, np.int64))
        >>> bool((sketch.estimates(counters, cells) >= 1).all()), int(counters.sum())
        (True, 4000)
    """

    def __init__(self, depth: int = 4, width: int = 8_000, *, seed: int = 1) -> None:
        if depth < 1 or width < 1:
            raise BadValueError(
                f"A sketch of {depth} rows of {width} counters cannot be made.",
                do="Give at least 1 of each; 4 rows of 8,000 are usual.",
            )
        self.depth, self.width, self.seed = depth, width, seed
        self.size = depth * width

    def cells(self, hashes: Hashes) -> Cells:
        """The counters of each key: one line per row of the sketch, numbered through all rows."""
        places = np.empty((self.depth, len(hashes)), np.int64)
        for row in range(self.depth):
            high = mixed(hashes, self.seed + 0x51ED27 * row) >> np.uint64(32)
            # A product's upper half instead of a remainder: several times faster, and as even.
            high *= np.uint64(self.width)
            high >>= np.uint64(32)
            places[row] = high
            places[row] += row * self.width
        return places

    def folded(self, cells: Cells, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a batch adds to each of all counters."""
        total = np.empty(self.size, np.int64)
        for row, places in enumerate(cells):
            start = row * self.width
            sums = np.bincount(places - start, weights=amounts, minlength=self.width)
            total[start : start + self.width] = sums
        return total

    def estimates(self, counters: NDArray[np.int64], cells: Cells) -> NDArray[np.int64]:
        """The estimate of each key: its smallest counter."""
        result: NDArray[np.int64] = counters[cells[0]]
        for places in cells[1:]:
            np.minimum(result, counters[places], out=result)
        return result

    def reaching(
        self, counters: NDArray[np.int64], cells: Cells, least: float
    ) -> NDArray[np.int64]:
        """Positions of the keys whose estimate is at least ``least``, without all estimates."""
        found = np.flatnonzero(counters[cells[0]] >= least)
        for places in cells[1:]:
            found = found[counters[places[found]] >= least]
        return found
