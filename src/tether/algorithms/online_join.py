"""Online join: COUNT, SUM and AVG over the join of two streams, from a sample of both.

Ripple join (Haas and Hellerstein) as in AF-Stream 2019 §6.1, experiment 4: rows of two streams
match if they have the same key in the same bucket of time. Each row is kept with probability p, so
each joined pair with p², and an estimate is the sample's answer divided by p².
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.hashing import hash_columns
from tether.algorithms.heavy_hitters import key_types
from tether.algorithms.join_moments import MOMENTS, Estimates, moments
from tether.core.errors import BadValueError
from tether.operator import DURABLE, EndedWindow, Loss, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState

_COUNTED = ("left", "right", "total", "squares", "left_out")


def two_sides(left: DataFrame, right: DataFrame) -> DataFrame:
    """Both streams as one, with a column ``is_left``: the input of ``JoinSample``.

    Columns that only one side has are null on the other.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415 - workers need it never

    marked = left.withColumn("is_left", F.lit(True))
    return marked.unionByName(right.withColumn("is_left", F.lit(False)), allowMissingColumns=True)


class JoinSample(Operator):
    """Upstream: keep each row with probability ``rate``, folded per key and bucket.

    Rows with a null in the key join nothing, as in SQL. Rows without a time or (on the left) a value
    and rows that come too late are left out, and counted in ``left_out``. A loss forgets how far the
    time had come: late rows of the next batch may then be let in instead.

    Args:
        key: Columns that must be equal on both sides.
        rate: Part of the rows to keep, above 0 to 1; 1 joins exactly.
        time: Column of event times: a timestamp, or seconds as a number. None: no buckets.
        bucket: Length of a bucket in seconds.
        value: Column of the left side that SUM and AVG are over; None: COUNT only.
        max_lateness: Seconds by which a row may be older than the newest one; None: any.
        seed: Of the sampling.

    Example:
        >>> JoinSample(["dst"], rate=0.1, time="time", value="bytes").name
        'join_sample'
    """

    def __init__(
        self,
        key: Sequence[str],
        *,
        rate: float,
        time: str | None = None,
        bucket: float = 1.0,
        value: str | None = None,
        max_lateness: float | None = None,
        seed: int = 1,
    ) -> None:
        self._key = [key] if isinstance(key, str) else list(key)
        self._rate = check_rate(rate)
        if not self._key or not bucket > 0:
            raise BadValueError(
                f"A join on {len(self._key)} columns in buckets of {bucket} s cannot be made.",
                do="Name at least one key column, and give a bucket above 0.",
            )
        self._time, self._bucket, self._value = time, bucket, value
        self._max_lateness, self._seed = max_lateness, seed

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Check the columns; the key's types go on."""
        del key
        from pyspark.sql.types import (  # noqa: PLC0415 - workers need it never
            DoubleType,
            LongType,
            StructField,
            StructType,
        )

        wanted = [*self._key, "is_left", *(c for c in (self._time, self._value) if c)]
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise BadValueError(
                f"The columns {missing} are not in the input.",
                why=f"The input has the columns {schema.names}.",
                do="Give both sides through two_sides(left, right).",
            )
        key_types(schema, self._key)
        fields = [StructField(name, schema[name].dataType) for name in self._key]
        fields += [StructField(name, LongType()) for name in ("bucket", "left", "right")]
        fields += [StructField(name, DoubleType()) for name in ("total", "squares")]
        self.output = StructType([*fields, StructField("left_out", LongType())])

    def setup(self, state: SlotState) -> None:
        """Only how far the time has come; the next row brings it back after a loss."""
        self._newest = state.vector("newest", 1, divergence="max", weights={"value": 0.0})

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Sample, and fold what was kept."""
        joinable = np.ones(batch.num_rows, np.bool_)
        for name in self._key:
            joinable &= _valid(batch.column(name))
        usable, buckets = self._timely(batch)
        if self._value is not None:
            is_right = ~_plain(batch.column("is_left"))
            usable &= _valid(batch.column(self._value)) | is_right
        left_out = int(np.count_nonzero(joinable & ~usable))
        kept = np.flatnonzero(joinable & usable & self._drawn(batch))
        rows = batch.take(pa.array(kept))
        is_left = _plain(rows.column("is_left"))
        values = np.where(is_left, self._values(rows), 0.0)
        columns = {name: rows.column(name) for name in self._key}
        columns["bucket"] = pa.array(buckets[kept])
        columns |= {
            "left": pa.array(is_left.astype(np.int64)),
            "right": pa.array((~is_left).astype(np.int64)),
            "total": pa.array(values),
            "squares": pa.array(values * values),
        }
        sums = [(name, "sum") for name in _COUNTED[:-1]]
        folded = pa.table(columns).group_by([*self._key, "bucket"]).aggregate(sums)
        folded = folded.rename_columns([name.removesuffix("_sum") for name in folded.schema.names])
        out.emit(folded.append_column("left_out", pa.array(np.zeros(len(folded), np.int64))))
        if left_out:
            nothing = {f.name: pa.nulls(1, f.type) for f in out.schema if f.name in self._key}
            out.emit(
                pa.table(
                    nothing
                    | {name: [0] for name in ("bucket", "left", "right")}
                    | {name: [0.0] for name in ("total", "squares")}
                    | {"left_out": [left_out]}
                )
            )

    def _drawn(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        if self._rate == 1:
            return np.ones(batch.num_rows, np.bool_)
        # Seeded by what the batch holds: no two draw alike, but one that comes again does, after a
        # loss too. Rows themselves must not decide, or equal ones would be kept or left together.
        places = np.arange(1, 2 * batch.num_rows, 2, dtype=np.uint64)
        salt = int((hash_columns(batch, self._key, self._seed) * places).sum())
        random = np.random.default_rng([self._seed, batch.num_rows, salt, *self._time_salt(batch)])
        drawn: NDArray[np.bool_] = random.random(batch.num_rows) < self._rate
        return drawn

    def _time_salt(self, batch: pa.RecordBatch) -> tuple[int, ...]:
        if self._time is None:
            return ()
        seconds = np.nan_to_num(seconds_of(batch.column(self._time)))
        return (int(seconds.view(np.uint64).sum()),)

    def _timely(self, batch: pa.RecordBatch) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows have a time that is not too old, and the bucket of each."""
        if self._time is None:
            count = batch.num_rows
            return np.ones(count, np.bool_), np.zeros(count, np.int64)
        seconds = seconds_of(batch.column(self._time))
        usable = np.isfinite(seconds)
        known = np.where(usable, seconds, 0.0)
        if self._max_lateness is not None and usable.any():
            newest = max(float(self._newest.values[0]), float(known[usable].max()))
            usable &= seconds >= newest - self._max_lateness
            self._newest.put([0], [newest])
        return usable, np.floor(known / self._bucket).astype(np.int64)

    def _values(self, rows: pa.RecordBatch) -> NDArray[np.float64]:
        if self._value is None:
            return np.zeros(rows.num_rows)
        column = pc.fill_null(rows.column(self._value), 0)
        values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return values


class RippleJoin(Operator):
    """Middle: the sample of both sides per key and bucket; ``key=[*key, "bucket"]``.

    Divergence: sampled rows. A loss takes at most θ of them, which is told downstream, so that the
    intervals can account for it.

    Args:
        rate: As for ``JoinSample``.

    Example:
        >>> RippleJoin(rate=0.1).name
        'ripple_join'
    """

    output = ", ".join(f"{name} double" for name in MOMENTS)
    joins = True

    def __init__(self, *, rate: float) -> None:
        self._rate = check_rate(rate)

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the key; insist on one, for halves of a pair must meet."""
        self._key = [name for name in schema.names if name not in _COUNTED]
        if sorted(key) != sorted(self._key):
            raise BadValueError(
                f"The ripple join was given the key {key}.",
                why=f"Matching rows meet only if they are sent by {self._key}.",
                do=f"Pass key={self._key} to apply().",
            )
        self._keys = key_types(schema, self._key)

    def parameters(self) -> Mapping[str, object]:
        """What gives the sample its meaning."""
        return {"rate": self._rate}

    def setup(self, state: SlotState) -> None:
        """The sample; how much of it was lost, which itself is never lost."""
        self._sample = state.table(
            "sample",
            self._keys,
            {"left": "int64", "right": "int64", "total": "float64", "squares": "float64"},
            weights={"total": 0.0, "squares": 0.0},
        )
        self._lost = state.vector("lost", 1, divergence="max", weights={"value": DURABLE})
        self._left_out = state.vector(
            "left_out", 1, dtype="int64", divergence="max", weights={"value": 0.0}
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add to the sample."""
        del out
        self._left_out.add([0], pc.sum(batch["left_out"]).as_py() or 0)
        rows = batch.filter(pc.equal(batch["left_out"], 0))
        columns = {name: rows[name] for name in ("left", "right", "total", "squares")}
        self._sample.add(rows.select(self._key), **columns)

    def on_epoch_end(self, out: Output) -> None:
        """Send this slot's sums: a pass over the sample's numbers, not over its keys."""
        names = ("left", "right", "total", "squares")
        sums = moments(*(self._sample.values(name) for name in names), rate=self._rate)
        sums |= {"lost": self._lost.values[0], "left_out": self._left_out.values[0]}
        out.emit({name: [float(sums[name])] for name in MOMENTS})

    def on_recover(self, loss: Loss) -> None:
        """Remember how many sampled rows may be missing."""
        self._lost.add([0], loss.bound)

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """Begin the next window with no rows, none lost."""
        del window, out
        self._sample.clear()
        self._lost.clear()
        self._left_out.clear()


class JoinEstimate(Operator):
    """Downstream, in one slot: the estimates of this epoch, from all slots' sums.

    Emits one row an epoch: ``count``, ``sum`` and ``avg``, each with ``_low`` and ``_high``;
    ``sampled`` and ``lost`` rows (the latter at most), and rows ``left_out``.

    Guarantee: with probability ``confidence`` (for large samples) an interval holds the true value.
    Lost rows are accounted for as a lower sampling rate (AF-Stream 2019, theorem 3): upper ends rise
    as if all rows that may be lost were, and were like the others. ``avg`` is null while nothing has
    joined.

    Args:
        rate: As for ``JoinSample``.
        confidence: Above 0, below 1.

    Example:
        >>> JoinEstimate(rate=0.1).name
        'join_estimate'
    """

    output = Estimates.SCHEMA

    def __init__(self, *, rate: float, confidence: float = 0.95) -> None:
        if not 0 < confidence < 1:
            raise BadValueError(
                f"confidence={confidence} is no probability.", do="Give 0.95, for example."
            )
        self._rate, self._confidence = check_rate(rate), confidence

    def setup(self, state: SlotState) -> None:
        """The sums of this epoch's rows; nothing outlives the epoch."""
        self._sums = state.vector("sums", len(MOMENTS), divergence="max", weights={"value": 0.0})

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add the slots' sums."""
        del out
        self._sums.add(None, [pc.sum(batch[name]).as_py() or 0.0 for name in MOMENTS])

    def on_epoch_end(self, out: Output) -> None:
        """Estimate."""
        sums = dict(zip(MOMENTS, self._sums.values.tolist(), strict=True))
        self._sums.clear()
        out.emit(Estimates(sums, self._rate, self._confidence).row())

    def on_recover(self, loss: Loss) -> None:
        """Forget half an epoch's sums: its rows come again."""
        del loss
        self._sums.clear()


def check_rate(rate: float) -> float:
    """Refuse what cannot be a sampling rate.

    Raises:
        BadValueError: It is not above 0 and at most 1.
    """
    if not 0 < rate <= 1:
        raise BadValueError(
            f"rate={rate} is not a sampling rate.", do="Give a number above 0, at most 1."
        )
    return float(rate)


def seconds_of(times: pa.Array) -> NDArray[np.float64]:
    """Event times in seconds; NaN for null. Takes timestamps and numbers.

    Raises:
        BadValueError: The column is of another type.
    """
    kind = times.type
    if pa.types.is_timestamp(kind):
        unit = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        times = pc.divide(times.cast(pa.int64()).cast(pa.float64()), unit)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadValueError(
            f"A time of type {kind} is not understood.",
            do="Give a timestamp column, or seconds as a number.",
        )
    seconds: NDArray[np.float64] = pc.fill_null(times.cast(pa.float64()), float("nan")).to_numpy(
        zero_copy_only=False
    )
    return seconds


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    return _plain(column.is_valid())


def _plain(flags: pa.Array) -> NDArray[np.bool_]:
    plain: NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False).astype(np.bool_)
    return plain
