"""Join: packets of two links that go to the same host in the same second: pairs and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.questions.question import Question
from tether.data import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECONDS = 1.5
"""Length of an epoch: every other second lies in two epochs, so that pairs are made across them."""


class Pairs(NamedTuple):
    """An answer: COUNT and SUM over the join."""

    number: float
    total: float
    """Bytes of the left packet, over all pairs."""
    interval: tuple[float, float] | None = None
    """Where an estimate says that the count lies; None: it is exact."""


class Join(Question):
    """COUNT and SUM over the join of two streams, so far."""

    schema = "seconds double, dst long, bytes long, is_left boolean"

    def tables(self) -> Iterator[pa.Table]:
        """Packets of both links, the right one's first.

        A file's row groups hold one side each, so that a reader of one side skips the other.
        """
        scenario = self.scenario
        found = packets(
            scenario.total_epochs,
            scenario.rows,
            flows=scenario.keys,
            skew=scenario.skew,
            rate=scenario.rows / SECONDS,
            seed=scenario.seed,
        )
        for number, table in enumerate(found):
            random = np.random.default_rng([scenario.seed, number, 5])
            is_left = np.sort(random.random(scenario.rows) < 0.5)
            order = np.argsort(random.random(scenario.rows))  # sides are independent of time
            rows = table.select(["time", "dst", "bytes"]).take(pa.array(order))
            rows = rows.rename_columns(["seconds", "dst", "bytes"])
            yield rows.append_column("is_left", pa.array(is_left))

    def truth(self, files: Sequence[Path]) -> Pairs:
        """Rows of each side per host and second, by numpy; sides multiplied."""
        rows = pa.concat_tables([pq.read_table(path) for path in files])
        second = np.floor(np.asarray(rows["seconds"])).astype(np.int64)
        _, place = np.unique((second << 32) | np.asarray(rows["dst"]), return_inverse=True)
        left = np.asarray(rows["is_left"])
        size = np.where(left, np.asarray(rows["bytes"]), 0)
        lefts, rights = (np.bincount(place, weights=side) for side in (left, ~left))
        return Pairs(float(lefts @ rights), float(np.bincount(place, weights=size) @ rights))

    def is_right(self, answer: Pairs, truth: Pairs) -> bool:
        """Equal, or the interval holds the true count."""
        if answer.interval is None:
            return answer == truth
        low, high = answer.interval
        return low <= truth.number <= high

    def shown(self, answer: Pairs) -> dict[str, Any]:
        """As it is."""
        return answer._asdict()
