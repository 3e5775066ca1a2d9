"""Small operators whose errors spread in every way there is, for tests by brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from tether import Operator

KEYS = {"k": pa.int64()}


class Keyed(Operator):
    """A number for each key; what has changed goes out with its new value."""

    output = "k bigint, x double"
    norm = "l1"
    factor = math.inf

    def __init__(self, norm: str | None = None, factor: float | None = None) -> None:
        self.norm = norm or self.norm
        self.factor = self.factor if factor is None else factor

    def amplification(self, before: Operator) -> float:
        return self.factor

    def setup(self, state: Any) -> None:
        self.held = state.table(
            "held", KEYS, {"x": "float64"}, divergence=self.norm, starts={"x": 0.0}
        )

    def on_epoch_end(self, out: Any) -> None:
        out.emit(self.held.rows_to_batch(self.held.changed()))


class Totals(Keyed):
    """Adds what comes, and sends running totals."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.add(batch.select(["k"]), x=batch["x"])


class Largest(Keyed):
    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.maximum(batch.select(["k"]), x=batch["x"])


class Passing(Totals):
    """Keeps totals, but sends what the epoch's own rows are: nothing of it can have been lost."""

    sends_losses = False

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        super().process(batch, out)
        out.emit(batch.select(["k", "x"]))

    def on_epoch_end(self, out: Any) -> None:
        pass


class Newest(Keyed):
    """The newest value of each key replaces the last one. True factor: 1, in the same divergence."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.put(batch.select(["k"]), x=batch["x"])


class Tripled(Keyed):
    """True factor: 3."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.put(batch.select(["k"]), x=3.0 * batch["x"].to_numpy())


class Capped(Keyed):
    """True factor: 1. No value is above 20."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.put(batch.select(["k"]), x=np.minimum(batch["x"].to_numpy(), 20.0))


class Flags(Keyed):
    """Whether a value is above 20, as 0 or 100. A small error can be all of that: no factor."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.put(batch.select(["k"]), x=np.where(batch["x"].to_numpy() > 20.0, 100.0, 0.0))


class Regrouped(Keyed):
    """Sums of the newest values over groups of keys: the old value goes out, the new one comes in.

    True factor from ``l1``: 2, as both what was last taken in and the sums can be wrong by it. From
    ``max`` there is none: all keys of a group can be wrong at once.
    """

    output = "k bigint, x double"

    def setup(self, state: Any) -> None:
        self.last = state.table("last", KEYS, {"x": "float64"})
        self.held = state.table("sums", KEYS, {"x": "float64"})

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        _, backwards = np.unique(batch["k"].to_numpy()[::-1], return_index=True)
        newest = batch.take(pa.array(batch.num_rows - 1 - backwards))  # of each key
        keys, values = newest.select(["k"]), newest["x"].to_numpy()
        old = self.last.get(keys).columns["x"]
        self.last.put(keys, x=values)
        self.held.add([pa.array(newest["k"].to_numpy() // 4)], x=values - old)


class Relay(Passing):
    """Keeps the newest values, and sends on what comes, with whatever is wrong in it. Factor: 1."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        self.held.put(batch.select(["k"]), x=batch["x"])
        out.emit(batch.select(["k", "x"]))


class Added(Totals):
    """Adds what comes, whatever it is. From running totals there is no factor."""


class Echo(Totals):
    """Totals, and half of what comes back; what it sends is the sum of both."""

    def setup(self, state: Any) -> None:
        super().setup(state)
        self.echo = state.table("echo", KEYS, {"x": "float64"})

    def on_feedback(self, items: pa.RecordBatch, out: Any) -> None:
        self.echo.put(items.select(["k"]), x=0.5 * items["x"].to_numpy())

    def on_epoch_end(self, out: Any) -> None:
        rows = pa.concat_arrays(
            [t.rows_to_batch(t.changed())["k"] for t in (self.held, self.echo)]
        ).unique()
        keys = pa.record_batch({"k": rows})
        both = [t.get(keys).columns["x"] for t in (self.held, self.echo)]
        out.emit({"k": rows, "x": both[0] + both[1]})


class Answering(Newest):
    """The newest values, which it also sends back."""

    feedback = "k bigint, x double"

    def on_epoch_end(self, out: Any) -> None:
        changed = self.held.rows_to_batch(self.held.changed())
        out.emit(changed)
        out.feedback(changed)


class Doubling(Keyed):
    """What is there is doubled before a row is added: an error doubles with every row of its key."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        for k, x in zip(batch["k"].to_pylist(), batch["x"].to_pylist(), strict=True):
            key = pa.record_batch({"k": pa.array([k], pa.int64())})
            self.held.put(key, x=[2.0 * self.held.get(key).columns["x"][0] + x])


class Stubborn(Keyed):
    """The first value of a key stays. Lost, it is another one: wrong by any amount."""

    def process(self, batch: pa.RecordBatch, out: Any) -> None:
        new = batch.filter(pa.array(~self.held.get(batch.select(["k"])).found))
        _, first = np.unique(new["k"].to_numpy(), return_index=True)
        new = new.take(pa.array(first))
        self.held.put(new.select(["k"]), x=new["x"])


def epochs(seed: int, count: int = 10, keys: int = 8, rows: int = 6) -> list[pa.Table]:
    """Small whole amounts of at least 1, so that all sums are exact."""
    draw = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "k": draw.integers(0, keys, rows),
                "x": draw.integers(1, 10, rows).astype(float),
            }
        )
        for _ in range(count)
    ]
