"""Heavy hitters: all keys whose sum passes a threshold, in fixed memory, none missed.

Two stages (AF-Stream 2019 §6.1, experiment 3). Upstream slots add rows to local sketches and name
local candidates; downstream one slot adds the local sketches up and checks the candidates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.count_min import CountMin
from tether.algorithms.hashing import check_hashable, hash_columns
from tether.core.errors import BadValueError, told
from tether.operator import DURABLE, EndedWindow, Loss, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState

_HASH_SEED = 11
_MOST_ADDED = 1 << 60
_ROWS = "__tether_rows"
"""Column with the number of rows that Spark has folded into one."""


class LocalSketch(Operator):
    """Upstream: a sketch of this slot's rows, and the keys that may be heavy.

    Apply it with ``key=`` the same columns: Spark then adds up each key's rows of an epoch first, and
    each key meets in one slot. Or without a key: rows stay where they are read, nothing is shuffled,
    and ``spread_over`` is the number of slots.

    At an epoch's end it sends what the epoch added to its counters, so a loss here takes nothing
    from the answer: what was sent is safe downstream. After a loss the counters are raised by all
    that may be missing, so that no candidate is overlooked; a few more are checked than need be.

    Args:
        key: Columns that name a key, for example source and destination.
        threshold: From which sum on a key is heavy, in units of ``value`` (bytes), or rows.
        value: Column to add up, whole and not negative; None counts rows.
        spread_over: Number of slots that a key's rows may go to. By the pigeonhole principle a
            heavy key has the ``spread_over``-th part of the threshold in one of them.
        depth: Rows of the sketch.
        width: Counters per row.

    Example:
        >>> LocalSketch(["src", "dst"], value="bytes", threshold=10_000_000).name
        'local_sketch'
    """

    def __init__(
        self,
        key: Sequence[str],
        *,
        threshold: float,
        value: str | None = None,
        spread_over: int = 1,
        depth: int = 4,
        width: int = 8_000,
    ) -> None:
        self._key, self._value = _names(key), value
        if spread_over < 1:
            raise BadValueError(
                f"spread_over={spread_over} is not a number of slots.",
                do="Give the parallelism of this stage, or 1 if it has a key.",
            )
        self._least = check_threshold(threshold) / spread_over
        self._sketch = CountMin(depth, width)

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the types of the key."""
        self._folds = set(key) == set(self._key)
        from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415

        _check_columns(schema, self._key, self._value)
        self._keys = key_types(schema, self._key)
        fields = [StructField(name, schema[name].dataType) for name in self._key]
        fields += [StructField(name, BinaryType()) for name in ("cells", "amounts")]
        self.output = StructType(fields)

    def parameters(self) -> Mapping[str, object]:
        """What gives the counters their meaning."""
        return {"key": self._key, "value": self._value, "sketch": _shape(self._sketch)}

    def combine(self) -> list[Column] | None:
        """Let Spark add up an epoch's rows of a key, where they meet anyway."""
        if not self._folds:
            return None
        from pyspark.sql import functions as F  # noqa: PLC0415

        if self._value is None:
            return [F.count(F.lit(1)).alias(_ROWS)]
        # What is wrong must be found before it is added up: then it could not be seen any more.
        value = F.col(f"`{self._value}`")
        wrong = F.raise_error(F.lit(told(_unusable(self._value, "nulls or negative numbers"))))
        return [F.sum(F.when(value >= 0, value).otherwise(wrong)).alias(self._value)]

    def setup(self, state: SlotState) -> None:
        """The counters; the same as of the last sending; and the candidates already named."""
        size = self._sketch.size
        self._counters = state.vector("counters", size, dtype="int64", divergence="max")
        # Neither is worth a backup: after a loss both are rebuilt.
        none = {"value": 0.0}
        self._sent = state.vector("sent", size, dtype="int64", divergence="max", weights=none)
        self._named = state.table(
            "named", self._keys, {"n": "int64"}, divergence="max", weights={"n": 0.0}
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add rows to the sketch; name keys that have become candidates."""
        amounts = _amounts(batch, self._value)
        hashes = hash_columns(batch, self._key, _HASH_SEED)
        cells = self._sketch.cells(hashes)
        added = self._sketch.folded(cells, amounts)
        touched = np.flatnonzero(added)
        self._counters.add(touched, added[touched], unique=True)
        found = self._sketch.reaching(self._counters.values, cells, self._least)
        if len(found):
            _, first = np.unique(hashes[found], return_index=True)
            self._name(batch.select(self._key).take(pa.array(found[first])), out)

    def _name(self, keys: pa.RecordBatch, out: Output) -> None:
        new = keys.filter(pa.array(~self._named.get(keys).found))
        if not new.num_rows:
            return
        self._named.add(new, n=1, unique=True)
        nothing = pa.nulls(new.num_rows, pa.binary())
        out.emit(_with(new, cells=nothing, amounts=nothing))

    def on_epoch_end(self, out: Output) -> None:
        """Send what the epoch added, as one row."""
        added = self._counters.values - self._sent.values
        touched = np.flatnonzero(added)
        if not len(touched):
            return
        self._sent.put(touched, self._counters.values[touched], unique=True)
        row: dict[str, Any] = {name: pa.nulls(1, kind) for name, kind in self._keys.items()}
        row["cells"] = pa.array([touched.astype("<i4").tobytes()], pa.binary())
        row["amounts"] = pa.array([added[touched].astype("<i8").tobytes()], pa.binary())
        out.emit(pa.table(row))

    def on_recover(self, loss: Loss) -> None:
        """Raise every counter by what it may have lost; name all candidates again."""
        self._counters.add(None, compensation(loss))
        self._sent.put(None, self._counters.values)
        self._named.clear()

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """Begin the next window with empty counters."""
        del window, out
        self._counters.clear()
        self._sent.clear()
        self._named.clear()


class GlobalSketch(Operator):
    """Downstream: the sum of all local sketches, and the candidates that it confirms.

    Apply it in one slot (``key=[], parallelism=1``). Every epoch it emits all keys that are heavy
    by now: the key, ``estimate`` (never below the true sum) and ``surplus``, the part of it that
    was added after failures.

    Guarantee (AF-Stream 2019, theorem 2): no heavy key is missing, after any number of failures of
    any slots, under every policy that keeps backups. A key that is not heavy is reported only if
    its sum, the sketch's own error and the surplus (at most Θ) reach the threshold together.

    Args:
        threshold: As for ``LocalSketch``.
        depth: As for ``LocalSketch``.
        width: As for ``LocalSketch``.
        emit: "epoch": the list so far, every epoch. "window": at the end of hopping windows only.

    Example:
        >>> GlobalSketch(threshold=10_000_000).name
        'global_sketch'
    """

    def __init__(
        self, *, threshold: float, depth: int = 4, width: int = 8_000, emit: str = "epoch"
    ) -> None:
        if emit not in ("epoch", "window"):
            raise BadValueError(f"emit={emit!r} is not known.", do='Use "epoch" or "window".')
        self._threshold = check_threshold(threshold)
        self._sketch = CountMin(depth, width)
        self._emit = emit

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the key from what the stage before sends."""
        del key
        from pyspark.sql.types import LongType, StructField, StructType  # noqa: PLC0415

        self._key = [name for name in schema.names if name not in ("cells", "amounts")]
        if len(self._key) != len(schema.names) - 2:
            raise BadValueError(
                f"The columns {schema.names} are not those of local sketches.",
                do="Apply GlobalSketch to a stream that LocalSketch was applied to.",
            )
        self._keys = key_types(schema, self._key)
        fields = [StructField(name, schema[name].dataType) for name in self._key]
        fields += [StructField(name, LongType()) for name in ("estimate", "surplus")]
        self.output = StructType(fields)

    def parameters(self) -> Mapping[str, object]:
        """What gives the counters their meaning."""
        return {"key": self._key, "sketch": _shape(self._sketch)}

    def amplification_of_losses(self, before: Operator) -> float:
        """Nothing of what ``LocalSketch`` loses: 0.

        It sends what an epoch's rows added to its counters: the difference to what it sent before.
        After a loss both are set to the same values, so the difference is again what rows add. Its
        candidates may be more than they would have been, never fewer; an estimate decides on each.
        """
        if isinstance(before, LocalSketch):
            return 0.0
        return super().amplification_of_losses(before)

    def setup(self, state: SlotState) -> None:
        """The counters; the candidates and the surplus, both of which are never lost."""
        size = self._sketch.size
        self._counters = state.vector("counters", size, dtype="int64", divergence="max")
        self._candidates = state.table(
            "candidates", self._keys, {"n": "int64"}, divergence="max", weights={"n": DURABLE}
        )
        self._surplus = state.vector(
            "surplus", 1, dtype="int64", divergence="max", weights={"value": DURABLE}
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add local sketches up; take candidates in."""
        del out
        is_sketch = pc.is_valid(batch["cells"])
        sketches = batch.filter(is_sketch)
        for cells, amounts in zip(
            sketches["cells"].to_pylist(), sketches["amounts"].to_pylist(), strict=True
        ):
            self._counters.add(
                np.frombuffer(cells, "<i4"), np.frombuffer(amounts, "<i8"), unique=True
            )
        keys = batch.filter(pc.invert(is_sketch)).select(self._key)
        if keys.num_rows:
            self._candidates.put(keys, n=1)

    def on_epoch_end(self, out: Output) -> None:
        """Emit the heavy keys so far."""
        if self._emit == "epoch":
            self._report(out)

    def _report(self, out: Output) -> None:
        for batch in self._candidates.batches():
            keys = batch.select(self._key)
            cells = self._sketch.cells(hash_columns(keys, self._key, _HASH_SEED))
            estimates = self._sketch.estimates(self._counters.values, cells)
            heavy = np.flatnonzero(estimates >= self._threshold)
            surplus = np.full(len(heavy), self._surplus.values[0])
            found = keys.take(pa.array(heavy))
            out.emit(_with(found, estimate=pa.array(estimates[heavy]), surplus=pa.array(surplus)))

    def on_recover(self, loss: Loss) -> None:
        """Raise every counter by what it may have lost."""
        raised = compensation(loss)
        self._counters.add(None, raised)
        self._surplus.add(None, raised)

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """Report the window, and begin the next with nothing."""
        del window
        if self._emit == "window":
            self._report(out)
        self._counters.clear()
        self._candidates.clear()
        self._surplus.clear()


def compensation(loss: Loss) -> int:
    """What to add to every counter, so that none is below its true value.

    Counters are whole, so what they have lost is whole too: a part of one was not lost. To add it all
    the same would, over many failures, add up to more than the bound.

    Without backups nothing bounds the loss, and nothing can make up for it: then it is 0.

    Example:
        >>> lost = Loss(slot=0, epoch=3, backup_epoch=1, failures=1, bound=250.5, theta=125.25)
        >>> compensation(lost)
        250
    """
    return min(math.floor(loss.bound), _MOST_ADDED) if math.isfinite(loss.bound) else 0


def check_threshold(threshold: float) -> float:
    """Refuse what cannot be a threshold.

    Raises:
        BadValueError: It is not above 0, or not a number.
    """
    if not threshold > 0 or math.isinf(threshold):
        raise BadValueError(
            f"threshold={threshold} is not usable.",
            do="Give a number above 0, in units of the value column, or in rows.",
        )
    return float(threshold)


def key_types(schema: StructType, key: Sequence[str]) -> dict[str, pa.DataType]:
    """The Arrow types of key columns, all of a type that can be a key.

    Raises:
        BadValueError: One of them cannot.
    """
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - workers need it never

    types = {name: to_arrow_type(schema[name].dataType, timezone="UTC") for name in key}
    for name, kind in types.items():
        check_hashable(name, kind)
    return types


def _names(key: Sequence[str]) -> list[str]:
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise BadValueError("Heavy hitters need a key.", do="Name the columns whose sums count.")
    return names


def _check_columns(schema: StructType, key: Sequence[str], value: str | None) -> None:
    missing = [name for name in (*key, *([value] if value else [])) if name not in schema.names]
    if missing:
        raise BadValueError(
            f"The columns {missing} are not in the input.",
            why=f"The input has the columns {schema.names}.",
        )
    whole = ("tinyint", "smallint", "int", "bigint")
    if value is not None and schema[value].dataType.simpleString() not in whole:
        raise BadValueError(
            f"The column {value!r} of type {schema[value].dataType.simpleString()} cannot be "
            "added up in a sketch.",
            why="Counters are 64-bit whole numbers.",
            do="Cast it to bigint first.",
        )


def _amounts(batch: pa.RecordBatch, value: str | None) -> NDArray[np.int64]:
    if value is None and _ROWS not in batch.schema.names:
        return np.ones(batch.num_rows, np.int64)
    value = value or _ROWS
    column = batch.column(value)
    amounts = column.to_numpy(zero_copy_only=False) if not column.null_count else None
    if amounts is None or (len(amounts) and int(amounts.min()) < 0):
        raise _unusable(value, "nulls" if amounts is None else "negative numbers")
    whole: NDArray[np.int64] = amounts.astype(np.int64, copy=False)
    return whole


def _unusable(value: str, what: str) -> BadValueError:
    return BadValueError(
        f"The column {value!r} holds {what}.",
        why="A sketch adds up amounts of 0 or more; others would break its promise.",
        do="Filter or fill them before this operator.",
    )


def _with(rows: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    arrays = [*rows.columns, *columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, *columns])


def _shape(sketch: CountMin) -> list[int]:
    return [sketch.depth, sketch.width, sketch.seed]
