"""Top-k: the k most frequent items of a sliding window, which moves by one pane an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.questions.question import Question
from tether.data import requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

PANE = 10
"""Seconds of event time in an epoch, and by which the window slides."""
DRIFT = 7
"""Ranks by which popular items change from epoch to epoch: the answer is never the last one."""
LATE = 2
"""Epochs until a watermark has closed a window; windows that are not closed then have no answer."""

Ranking = list[tuple[int, int]]
"""Items with their counts, the most frequent first."""


class Tops(NamedTuple):
    """An answer."""

    windows: dict[int, Ranking]
    """By the number of the window's last pane."""
    error: float = 0.0
    """By which part of a window's rows a count may be wrong, for sketches."""


class TopK(Question):
    """Which items came most often in the last panes? Items of equal count are in order of number."""

    schema = "item long, time long"

    def tables(self) -> Iterator[pa.Table]:
        """Requests for items, their time in whole seconds, in order."""
        scenario = self.scenario
        found = requests(
            scenario.total_epochs,
            scenario.rows,
            items=scenario.keys,
            skew=scenario.skew,
            rate=scenario.rows / PANE,
            drift=DRIFT,
            seed=scenario.seed,
        )
        for table in found:
            seconds = pc.floor(table["time"]).cast(pa.int64())
            yield pa.table({"item": table["key"], "time": seconds})

    def truth(self, files: Sequence[Path]) -> list[Counts]:
        """Counts of all items in the window that ends with each epoch, by numpy."""
        window, found = Window(self.scenario.keys, self.scenario.panes), []
        for path in files:
            window.slide(np.asarray(pq.read_table(path, columns=["item"])["item"]))
            found.append(window.counts.copy())
        return found

    def is_right(self, answer: Tops, truth: list[Counts]) -> bool:
        """Every window is right, and the newest that can be closed is among them."""
        if not answer.windows or max(answer.windows) < len(truth) - 1 - LATE:
            return False
        return all(
            self._agrees(ranking, truth[pane], answer.error)
            for pane, ranking in answer.windows.items()
        )

    def _agrees(self, ranking: Ranking, counts: Counts, error: float) -> bool:
        if not error:
            return ranking == largest(counts, self.scenario.k)
        off = error * counts.sum()
        items, found = (np.array(column, np.int64) for column in zip(*ranking, strict=True))
        missing = np.delete(counts, items)
        return (
            len(items) == self.scenario.k
            and bool((np.abs(counts[items] - found) <= off).all())
            and bool(missing.max() <= found.min() + off)
        )

    def shown(self, answer: Tops) -> dict[str, Any]:
        """The winner of the newest window."""
        newest = max(answer.windows, default=-1)
        first = answer.windows[newest][:1] if answer.windows else []
        return {"windows": len(answer.windows), "newest": newest, "first": [list(x) for x in first]}


class Window:
    """Counts of all items in the last panes, in memory."""

    def __init__(self, items: int, panes: int) -> None:
        self.counts: Counts = np.zeros(items, np.int64)
        self._panes: list[Counts] = []
        self._length = panes

    def slide(self, items: NDArray[np.int64]) -> None:
        """Add a pane; the oldest goes."""
        self._panes.append(np.bincount(items, minlength=len(self.counts)))
        self.counts += self._panes[-1]
        if len(self._panes) > self._length:
            self.counts -= self._panes.pop(0)


def largest(counts: Counts, k: int) -> Ranking:
    """The k items of the largest counts above 0.

    Example:
        >>> largest(np.array([3, 0, 5, 3]), 2)
        [(2, 5), (0, 3)]
    """
    k = min(k, len(counts))
    least = max(1, np.partition(counts, len(counts) - k)[len(counts) - k])
    items = np.flatnonzero(counts >= least)
    items = items[np.lexsort((items, -counts[items]))][:k]
    return list(zip(items.tolist(), counts[items].tolist(), strict=True))
