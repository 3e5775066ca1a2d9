"""The k most frequent items of a sliding window, in three stages (PPA 2016 §VI, query Q1).

Slices count their rows, a keyed stage keeps the window's counts and names its own top k, and one
slot merges these into the top k of all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.heavy_hitters import key_types
from tether.algorithms.online_join import seconds_of
from tether.algorithms.panes import Panes, check_window, drop_dead_rows
from tether.core.errors import BadValueError
from tether.operator import Loss, Operator

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState


_COUNTED = ("pane", "n", "left_out")


class SliceCounts(Operator):
    """First stage: rows in, counts per item and pane out. Keeps nothing between slices.

    Rows without a time are counted in ``left_out``, and their items not at all.

    Args:
        item: Columns that name an item.
        time: Event time: a timestamp, or seconds as a number.
        pane: Length of a pane in seconds: by this much the window slides.

    Example:
        >>> SliceCounts("url", time="time", pane=10).name
        'slice_counts'
    """

    def __init__(self, item: str | Sequence[str], *, time: str, pane: float) -> None:
        self._item = [item] if isinstance(item, str) else list(item)
        check_window(1, pane)
        self._time, self._pane = time, pane

    def bind(self, schema: StructType, key: list[str]) -> None:
        """The items' types go on."""
        del key
        from pyspark.sql.types import LongType, StructField, StructType  # noqa: PLC0415

        missing = [name for name in (*self._item, self._time) if name not in schema.names]
        if missing:
            raise BadValueError(
                f"The columns {missing} are not in the input.",
                why=f"The input has the columns {schema.names}.",
            )
        key_types(schema, self._item)
        fields = [StructField(name, schema[name].dataType) for name in self._item]
        fields += [StructField(name, LongType()) for name in _COUNTED]
        self.output = StructType(fields)

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Count a slice."""
        seconds = seconds_of(batch.column(self._time))
        timed = np.flatnonzero(np.isfinite(seconds))
        columns = {name: batch.column(name).take(pa.array(timed)) for name in self._item}
        columns["pane"] = pa.array(np.floor(seconds[timed] / self._pane).astype(np.int64))
        counted = pa.table(columns).group_by([*self._item, "pane"]).aggregate([([], "count_all")])
        counted = counted.rename_columns([*self._item, "pane", "n"])
        left_out = np.zeros(len(counted), np.int64)
        if len(left_out) and len(timed) < batch.num_rows:
            left_out[0] = batch.num_rows - len(timed)
        out.emit(counted.append_column("left_out", pa.array(left_out)))


class WindowCounts(Operator):
    """Second stage, keyed by the item: counts in the window, and the slot's own top k.

    Some of the item's columns are enough as the key: rows of one item still meet in one slot.

    A row of an older pane that is still in the window counts there; one that is older than the
    window is left out, and counted in ``left_out``.

    A slot slides its window as its own rows come. Where a slot may see none for a while, let
    ``TopK`` tell it the time: ``feedback_to=`` this stage's stream.

    Divergence: rows, over all items. After failures all counts together are wrong by at most Θ.

    Args:
        k: How many items are wanted.
        panes: Panes in the window.

    Example:
        >>> WindowCounts(k=100, panes=30).name
        'window_counts'
    """

    def __init__(self, *, k: int, panes: int) -> None:
        self._k = check_k(k)
        check_window(panes, 1)
        self._panes = panes

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the items; insist on them as the key."""
        from pyspark.sql.types import LongType, StructField, StructType  # noqa: PLC0415

        self._item = [name for name in schema.names if name not in _COUNTED]
        if not key or not set(key) <= set(self._item):
            raise BadValueError(
                f"The window's counts were given the key {key}.",
                why="Counts of one item must meet in one slot.",
                do=f"Pass key={self._item}, or some of these columns, to apply().",
            )
        self._keys = key_types(schema, self._item)
        fields = [StructField(name, schema[name].dataType) for name in self._item]
        self.output = StructType([*fields, *(StructField(n, LongType()) for n in _COUNTED)])

    def parameters(self) -> Mapping[str, object]:
        """What gives the counts their meaning."""
        return {"panes": self._panes}

    def amplification(self, before: Operator) -> float:
        """Nothing of what is wrong in ``TopK``: 0.

        All that it feeds back is the newest pane of any slot. A pane moves on with a row that is
        counted and sent in the same epoch, before anything of it can be lost, and is made durable.
        """
        return 0.0 if isinstance(before, TopK) else math.inf

    def setup(self, state: SlotState) -> None:
        """A column for each pane, and one for their sum."""
        self._names = [f"pane{number}" for number in range(self._panes)]
        columns = dict.fromkeys(["total", *self._names], "int64")
        self._counts = state.table("counts", self._keys, columns, weights={"total": 0.0})
        self._window = Panes(state, self._panes)
        self._left_out = state.vector(
            "left_out", 1, dtype="int64", divergence="max", weights={"value": 0.0}
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Slide the window up to the newest pane, then add."""
        del out
        panes = batch["pane"].to_numpy()
        self._slide(int(panes.max()))
        timely = self._window.in_window(panes)
        late = int(batch["n"].to_numpy()[~timely].sum())
        self._left_out.add([0], late + (pc.sum(batch["left_out"]).as_py() or 0))
        places = panes % self._panes
        for place in np.unique(places[timely]):
            rows = batch.filter(pa.array(timely & (places == place)))
            added = {"total": rows["n"], self._names[place]: rows["n"]}
            self._counts.add(rows.select(self._item), **added)

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Slide the window as far as that of any other slot."""
        del out
        self._slide(pc.max(items["pane"]).as_py())

    def _slide(self, newest: int) -> None:
        for place in self._window.advance(newest):
            self._expire(self._names[place])

    def _expire(self, name: str) -> None:
        """Take a pane that has left the window out of the sums."""
        counts = self._counts.values(name)
        rows = np.flatnonzero(counts)
        gone = -counts[rows]
        keys = self._counts.rows_to_batch(rows).select(self._item)
        self._counts.add(keys, unique=True, **{"total": gone, name: gone})
        drop_dead_rows(self._counts, self._counts.values("total") > 0)

    def on_epoch_end(self, out: Output) -> None:
        """Emit this slot's top k, ties included."""
        totals = self._counts.values("total")
        rows = _largest(totals, self._k)
        found = self._counts.rows_to_batch(rows).select([*self._item, "total"])
        left_out = np.zeros(len(rows), np.int64)
        left_out[:1] = self._left_out.values[0]
        pane = np.full(len(rows), self._window.newest)
        columns = [*found.columns, pa.array(pane), pa.array(left_out)]
        out.emit(pa.RecordBatch.from_arrays(columns, names=[*self._item, "n", "pane", "left_out"]))


class TopK(Operator):
    """Third stage, in one slot: merge the slots' lists into the top k of this epoch.

    Emits k rows an epoch: the item, ``n`` and ``rank`` from 1. Items of equal count are in the
    order of their names, so that the answer is always the same.

    Args:
        k: How many items.
        item: Columns that name an item, where the lists are finer: counts of rows that differ in other
            columns only are added up. Each list must then be long enough to hold what adds up to much.

    Example:
        >>> TopK(100).name
        'top_k'
    """

    feedback = "pane bigint"

    def __init__(self, k: int, *, item: str | Sequence[str] = ()) -> None:
        self._k = check_k(k)
        self._asked = [item] if isinstance(item, str) else list(item)

    def parameters(self) -> Mapping[str, object]:
        """What gives the lists their meaning."""
        return {"item": self._asked} if self._asked else {}

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the items."""
        del key
        from pyspark.sql.types import IntegerType, StructField, StructType  # noqa: PLC0415

        named = [name for name in schema.names if name not in _COUNTED]
        missing = [name for name in self._asked if name not in named]
        if missing:
            raise BadValueError(
                f"The columns {missing} are not in the lists.", why=f"They have {named}."
            )
        self._item = self._asked or named
        self._keys = key_types(schema, self._item)
        fields = [schema[name] for name in (*self._item, "n")]
        self.output = StructType([*fields, StructField("rank", IntegerType())])

    def amplification(self, before: Operator) -> float:
        """What is wrong in ``WindowCounts``, as it is: 1. Counts go on unchanged."""
        return 1.0 if isinstance(before, WindowCounts) else math.inf

    def setup(self, state: SlotState) -> None:
        """The lists of this epoch; nothing outlives it."""
        columns = {"n": "int64", "pane": "int64"}
        self._merged = state.table(
            "merged",
            self._keys,
            columns,
            starts={"pane": np.iinfo(np.int64).min},
            weights=dict.fromkeys(columns, 0.0),
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Take lists in; unless they are finer than the item, it is in one of them only."""
        del out
        keys = batch.select(self._item)
        self._merged.add(keys, n=batch["n"])
        self._merged.maximum(keys, pane=batch["pane"])

    def on_epoch_end(self, out: Output) -> None:
        """Sort what may be among the first k; tell all slots the newest pane."""
        if not len(self._merged):
            return
        out.feedback({"pane": [int(self._merged.values("pane").max())]})
        rows = _largest(self._merged.values("n"), self._k)
        order = [("n", "descending"), *((name, "ascending") for name in self._item)]
        found = pa.table(self._merged.rows_to_batch(rows)).drop_columns(["pane"])
        first = found.sort_by(order).slice(0, self._k)
        rank = pa.array(np.arange(1, len(first) + 1, dtype=np.int32))
        out.emit(first.append_column("rank", rank))
        self._merged.clear()

    def on_recover(self, loss: Loss) -> None:
        """Forget half an epoch's lists: they come again."""
        del loss
        self._merged.clear()


def accuracy(answer: Collection[object], truth: Collection[object]) -> float:
    """The part of the true answer that is in the given one (PPA 2016 §VI-B).

    Example:
        >>> accuracy(["a", "b"], ["a", "c"])
        0.5
    """
    true = set(truth)
    return len(true & set(answer)) / len(true) if true else 1.0


def check_k(k: int) -> int:
    """Refuse what is no number of items.

    Raises:
        BadValueError: It is below 1.
    """
    if k < 1:
        raise BadValueError(f"k={k} is no number of items.", do="Give at least 1.")
    return k


def _largest(counts: np.ndarray, k: int) -> np.ndarray:
    """Rows of the k largest counts above 0, and of all that equal the last of these."""
    if len(counts) <= k:
        return np.flatnonzero(counts > 0)
    least = np.partition(counts, len(counts) - k)[len(counts) - k]
    return np.flatnonzero((counts >= least) & (counts > 0))
