"""The operator behind ``groupBy(…).agg(…)``: numbers per key that are added, or compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DoubleType, LongType, ShortType, StructField, StructType

from tether.core.errors import BadValueError
from tether.operator import DURABLE, EndedWindow, Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column

    from tether.algorithms.grouped_values import ValuesPart
    from tether.output import Output
    from tether.state.slot import SlotState

_ROWS_OUT = 65_536
_LARGEST = (1 << 63) - 1
_SPARK = {"int64": LongType(), "float64": DoubleType(), "uint8": ShortType()}
_STARTS = {"max": -math.inf, "min": math.inf}


@dataclass(frozen=True)
class Part:
    """One number that is kept for each key.

    Args:
        name: Its column.
        combined: By what Spark folds an epoch's rows of a key into it.
        kind: "int64", "float64", or "uint8" for a flag.
        how: How epochs go together: their sum, the largest or the smallest.
        weight: What an error of one unit counts.
    """

    name: str
    combined: Column
    kind: str
    how: Literal["add", "max", "min"] = "add"
    weight: float = 1.0


@dataclass(frozen=True)
class DistinctPart:
    """The registers of a HyperLogLog for each key, and what the estimate needs of them.

    Args:
        table: Name of the registers' table.
        name: Column with an epoch's (register · 64 + run) of a key.
        combined: By what Spark folds it.
        harmonic: Column with the sum of 2^-run - 1 over the registers that were touched.
        touched: Column with their number.
        raises: Column that counts how often a register was raised. It weighs ``DURABLE``, so a row
            of which anything has changed is saved with all its columns.
    """

    table: str
    name: str
    combined: Column
    harmonic: str
    touched: str
    raises: str


class GroupedParts(Operator):
    """Keeps parts of aggregates for each key; the answer is made of them in Spark.

    Made by ``tether.stream(df).groupBy(…).agg(…)``; see docs/everyday.md. After failures the parts that
    are sums, largest or smallest values are wrong by no more than the bound, all of them together
    (``l1``) or each (``max``). Parts that weigh ``DURABLE`` are never lost.

    Args:
        parts: The numbers.
        distinct: The distinct counts.
        values: Columns whose values are counted, for quantiles and the most frequent ones.
        emit: "changed" keys, "all" keys, or "ended": those of windows that have ended.
        window_end: Key column with the end of a window in seconds, if there is one; keys of windows
            that have ended are dropped then, and late rows with them.
        divergence: "l1", "l2" or "max".
    """

    disjoint = True  # the tables' key is the key that rows are routed by
    overlapping = True  # a window is a group of its own
    alike: ClassVar[Mapping[str, Literal["max", "min"]]] = {"ended": "max"}

    def __init__(
        self,
        parts: Sequence[Part],
        distinct: Sequence[DistinctPart] = (),
        values: Sequence[ValuesPart] = (),
        *,
        emit: Literal["changed", "all", "ended"] = "changed",
        window_end: str | None = None,
        divergence: str = "l1",
    ) -> None:
        self._parts, self._distinct, self._values = list(parts), list(distinct), list(values)
        self._emit, self._earliest = emit, -math.inf
        self._window_end, self._divergence = window_end, divergence
        self._kept = {part.name: part.kind for part in parts} | {
            name: kind
            for one in distinct
            for name, kind in (
                (one.harmonic, "float64"),
                (one.touched, "int64"),
                (one.raises, "int64"),
            )
        }

    @property
    def name(self) -> str:
        """Its name in stories and backups."""
        return "group_by"

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the key's types."""
        if not key:
            raise BadValueError("groupBy() needs a column.", do="Group by something.")
        self._keys = {name: to_arrow_type(schema[name].dataType, timezone="UTC") for name in key}
        asked: list[Part | DistinctPart | ValuesPart] = [
            *self._parts,
            *self._distinct,
            *self._values,
        ]
        self._combined = [part.combined.alias(part.name) for part in asked]
        # What crosses to the workers is this object: Columns cannot, and are not needed there.
        self._parts = [_plain(part) for part in self._parts]
        self._distinct = [_plain(one) for one in self._distinct]
        self._values = [_plain(one) for one in self._values]
        fields = [schema[name] for name in key]
        fields += [StructField(name, _SPARK[kind]) for name, kind in self._kept.items()]
        fields += [one.field for one in self._values]
        self.output = StructType(fields)
        self.repeats = "float64" not in {part.kind for part in self._parts if part.how == "add"}
        self.merges = self.repeats and self._window_end is None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_combined"}

    def parameters(self) -> Mapping[str, object]:
        """What gives the stored numbers their meaning."""
        return {
            "parts": [[part.name, part.kind, part.how] for part in self._parts],
            "distinct": [one.table for one in self._distinct],
            "window_end": self._window_end,
            "divergence": self._divergence,
            **({"values": [one.parameters() for one in self._values]} if self._values else {}),
        }

    def combine(self) -> list[Column] | None:
        """Let Spark fold an epoch's rows: one row per key reaches the slot."""
        return self._combined

    def setup(self, state: SlotState) -> None:
        """One table of parts, one of registers for each distinct count, how far windows have ended."""
        weights = {part.name: part.weight for part in self._parts if part.kind != "uint8"}
        for one in self._distinct:
            weights |= {one.harmonic: 0.0, one.touched: 0.0, one.raises: DURABLE}
        self._table = state.table(
            "parts",
            self._keys,
            self._kept,
            divergence=self._divergence,
            weights=weights,
            starts={part.name: _STARTS[part.how] for part in self._parts if part.how != "add"},
        )
        self._registers = [
            state.table(
                one.table,
                {**self._keys, "register": pa.int32()},
                {"run": "int64"},
                divergence=self._divergence,
                weights={"run": DURABLE},
                starts={"run": 0},
            )
            for one in self._distinct
        ]
        self._counts = [one.make(state, self._keys, self._divergence) for one in self._values]
        if self._window_end is not None:
            # In seconds since 1970; 0 before any has ended.
            self._ended = state.number("ended", dtype="float64", weights={"value": DURABLE})

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Put an epoch's parts per key to those so far."""
        del out
        if self._window_end is not None and self._ended.value:
            late = pc.less_equal(self._seconds(batch), self._ended.value)
            batch = batch.filter(pc.invert(late))
        if not batch.num_rows:
            return
        keys = batch.select(list(self._keys))
        added: dict[str, Any] = {
            part.name: batch[part.name] for part in self._parts if part.how == "add"
        }
        for one, registers in zip(self._distinct, self._registers, strict=True):
            added |= _raised(one, registers, keys, batch[one.name])
        for values, counts in zip(self._values, self._counts, strict=True):
            values.count(counts, keys, batch[values.name])
        self._table.add(keys, unique=True, **added)
        for how, change in (("max", self._table.maximum), ("min", self._table.minimum)):
            compared = {p.name: _or_start(batch[p.name], p) for p in self._parts if p.how == how}
            if compared:
                change(keys, unique=True, **compared)

    def on_epoch_end(self, out: Output) -> None:
        """Emit what changed, or everything."""
        self._earliest = -math.inf
        if self._emit == "changed":
            self._send(out, np.asarray(self._table.changed(), np.int64))
        elif self._emit == "all":
            self._send(out, np.arange(len(self._table)))

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """Emit windows that have ended, where they are wanted then, and forget them."""
        if self._window_end is None:
            return
        before = self._ended.value
        self._ended.put(window.end)
        if window.end < self._earliest:
            return  # one epoch may end many windows, and most of them hold nothing
        everything = [batch for batch in self._table.batches(_ROWS_OUT) if batch.num_rows]
        ends = [self._seconds(batch) for batch in everything]
        ended = [pc.less_equal(one, window.end) for one in ends]
        if any(pc.any(which).as_py() for which in ended):
            if self._emit == "ended":
                seconds = np.concatenate([one.to_numpy() for one in ends])
                # A loss may have brought back a window that was emitted already.
                new = seconds > before if before else True
                self._send(out, np.flatnonzero((seconds <= window.end) & new))
            _keep(self._table, self._open(everything, ended))
            for other in (*self._registers, *self._counts):
                rows = [batch for batch in other.batches(_ROWS_OUT) if batch.num_rows]
                over = [pc.less_equal(self._seconds(batch), window.end) for batch in rows]
                _keep(other, self._open(rows, over))
        self._earliest = min(
            (end for one in ends if (end := _least_above(one, window.end)) is not None),
            default=math.inf,
        )

    def _open(self, batches: Iterable[Any], ended: Iterable[Any]) -> list[pa.RecordBatch]:
        return [batch.filter(pc.invert(which)) for batch, which in zip(batches, ended, strict=True)]

    def _seconds(self, batch: pa.RecordBatch) -> pa.Array:
        """The end of each row's window, in seconds since 1970."""
        ends = batch[self._window_end].cast(pa.timestamp("us")).cast(pa.int64())
        return pc.divide(ends.cast(pa.float64()), 1e6)

    def _send(self, out: Output, rows: NDArray[np.int64]) -> None:
        """Emit rows of the table of parts, with what their values answer."""
        if not len(rows):
            return
        answers = [
            one.answers(counts, self._table, rows)
            for one, counts in zip(self._values, self._counts, strict=True)
        ]
        for cut in range(0, len(rows), _ROWS_OUT):
            batch = self._table.rows_to_batch(rows[cut : cut + _ROWS_OUT])
            for one, answer in zip(self._values, answers, strict=True):
                batch = batch.append_column(one.answer, answer.slice(cut, _ROWS_OUT))
            out.emit(batch)


def _least_above(seconds: pa.Array, end: float) -> float | None:
    least: float | None = pc.min(seconds.filter(pc.greater(seconds, end))).as_py()
    return least


def _plain(part: Any) -> Any:
    """The part without the Column by which Spark folds it."""
    return type(part)(**{**vars(part), "combined": None})


def _or_start(values: pa.Array, part: Part) -> pa.Array:
    """A key of nothing but nulls is left as it is: at its start."""
    if part.kind == "float64":
        return pc.fill_null(values, _STARTS[part.how])
    return pc.fill_null(values, -_LARGEST - 1 if part.how == "max" else _LARGEST)


def _raised(one: DistinctPart, registers: Any, keys: pa.RecordBatch, packed: Any) -> dict[str, Any]:
    """Raise registers; give for each key what that changes in the numbers of its estimate."""
    of_key = pc.list_parent_indices(packed)
    items = np.asarray(pc.list_flatten(packed).to_numpy(zero_copy_only=False), np.int64)
    order = np.asarray(of_key.to_numpy(zero_copy_only=False), np.int64)
    # One key and register may come with several runs: the longest counts.
    sort = np.lexsort((items, order))
    order, items = order[sort], items[sort]
    register = items >> 6
    last = np.ones(len(items), bool)
    last[:-1] = (order[1:] != order[:-1]) | (register[1:] != register[:-1])
    order, register, run = order[last], register[last], items[last] & 63
    harmonic = np.zeros(keys.num_rows)
    touched, raises = np.zeros(keys.num_rows, np.int64), np.zeros(keys.num_rows, np.int64)
    if len(order):
        full = keys.take(pa.array(order)).append_column("register", pa.array(register, pa.int32()))
        before = registers.get(full).columns["run"]
        higher = run > before
        where = order[higher]
        np.add.at(harmonic, where, np.exp2(-run[higher]) - np.exp2(-before[higher]))
        np.add.at(touched, where, (before[higher] == 0).astype(np.int64))
        np.add.at(raises, where, 1)
        if higher.any():
            registers.maximum(full.filter(pa.array(higher)), unique=True, run=run[higher])
    return {one.harmonic: harmonic, one.touched: touched, one.raises: raises}


def _keep(table: Any, batches: Sequence[pa.RecordBatch]) -> None:
    """Let a table hold these rows alone."""
    keys = table.key_schema.names
    table.clear()
    for batch in batches:
        if batch.num_rows:
            values = {name: batch[name] for name in batch.schema.names if name not in keys}
            table.put(batch.select(keys), unique=True, **values)
