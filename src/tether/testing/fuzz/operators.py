"""A stage of a random program as an operator that Tether runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DoubleType, LongType, StructType, TimestampType

from tether.operator import Operator
from tether.testing.fuzz.factors import factor_between
from tether.testing.fuzz.program import KEYS, USERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.operator import EndedWindow
    from tether.output import Output
    from tether.state.slot import SlotState
    from tether.testing.fuzz.program import Row, Stage, State, Step

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("u", pa.int64()),
        ("n", pa.int64()),
        ("v", pa.float64()),
        ("m", pa.int64()),
        ("i", pa.int64()),
        ("p", pa.int64()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)
_KINDS = {"v": DoubleType(), "t": TimestampType()}
SHAPE = StructType()
for _name in SCHEMA.names:
    SHAPE = SHAPE.add(_name, _KINDS.get(_name, LongType()))
FEEDBACK = StructType().add("k", LongType()).add("n", LongType()).add("v", DoubleType())


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows in the shape that all stages take and give."""
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names if name != "t"}
    columns["t"] = [datetime.fromtimestamp(row["p"], UTC) for row in rows]
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


class Tally:
    """An object as state: how many, and how much."""

    state_type: ClassVar[str] = "tally"

    def __init__(self) -> None:
        self.total = 0

    def state_divergence(self, backup: bytes) -> float:
        """How much of the total the image lacks."""
        return float(abs(self.total - json.loads(backup)))

    def backup_state(self) -> bytes:
        """The total."""
        return json.dumps(self.total).encode()

    def recover_state(self, image: bytes) -> None:
        """The total as it was."""
        self.total = json.loads(image)


class Made(Operator):
    """Does what a stage says.

    Args:
        stage: The stage.
    """

    output = SHAPE

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.disjoint, self.sends_losses = stage.disjoint, stage.emits == "totals"
        self._out: Output | None = None
        self._touched: set[int] = set()
        self.feedback = FEEDBACK if stage.feeds_back else None

    @property
    def name(self) -> str:
        """The stage's."""
        return self._stage.name

    def amplification(self, before: Operator) -> float:
        """The factor for errors of earlier operators; feedback does not depend on the state."""
        assert isinstance(before, Made)
        # Feedback goes to the first operator only, and no rows of others do.
        return 0.0 if self._stage.name == "s0" else factor_between(before._stage, self._stage)

    def setup(self, state: SlotState) -> None:
        """Declare the stage's states."""
        self._states = {each.name: (each, _declared(state, each)) for each in self._stage.states}

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Take the steps for rows, each over the whole batch; then send on."""
        if out is not self._out:  # another epoch, or another attempt at it
            self._out, self._touched = out, set()
        self._touched.update(batch["k"].to_pylist())
        for step in self._stage.steps:
            if step.on == "rows":
                rows = batch if step.mark is None else batch.filter(pc.equal(batch["m"], step.mark))
                self._take(step, rows)
        if self._stage.emits == "rows":
            out.emit(batch)
        elif self._stage.emits == "sums":
            out.emit(_sums(batch))

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Take the steps for feedback."""
        del out
        for step in self._stage.steps:
            if step.on == "feedback":
                self._take(step, _as_rows(items))

    def on_epoch_end(self, out: Output) -> None:
        """Take the steps for the end of an epoch; then send on."""
        for step in self._stage.steps:
            if step.on == "epoch":
                self._take(step, None)
        if self._stage.emits == "totals":
            state, table = self._states[self._stage.states[0].name]
            touched = sorted(self._touched) if out is self._out else []
            found = table.get([pa.array(touched, pa.int64())])
            there = zip(touched, found.columns["x"].tolist(), found.found.tolist(), strict=True)
            whole = state.dtype == "int64"
            out.emit(
                batch_of([_row(k, x * whole, x * (not whole)) for k, x, known in there if known])
            )
        if self._stage.feeds_back:
            out.feedback({"k": [0], "n": [1], "v": [0.25]})

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """Take the steps for the end of a window."""
        del window, out
        for step in self._stage.steps:
            if step.on == "window":
                self._take(step, None)

    def _take(self, step: Step, rows: pa.RecordBatch | None) -> None:
        state, live = self._states[step.state]
        if rows is not None and not rows.num_rows:
            return
        if step.what == "halve":
            live *= 0.5
        elif step.what == "clear":
            if state.kind == "object":
                live.value.total = 0
            else:
                live.clear()
        else:
            assert rows is not None
            _change(state, live, step.what, rows)


def _declared(slot: SlotState, state: State) -> Any:
    weights = {"value": state.weight} if state.weight != 1 else None
    common: dict[str, Any] = {
        "dtype": state.dtype,
        "divergence": state.divergence,
        "weights": weights,
    }
    keys = {name: pa.int64() for name in state.keys}
    if state.kind == "number":
        return slot.number(state.name, **common)
    if state.kind == "vector":
        return slot.vector(state.name, KEYS, **common)
    if state.kind == "matrix":
        return slot.matrix(state.name, USERS, KEYS, **common)
    if state.kind == "set":
        return slot.set(state.name, keys)
    if state.kind == "object":
        return slot.object(state.name, Tally())
    return slot.table(
        state.name,
        keys,
        {"x": state.dtype},
        divergence=state.divergence,
        weights={"x": state.weight} if state.weight != 1 else None,
        starts={"x": float(state.start)} if state.start else None,
    )


def _change(state: State, live: Any, what: str, rows: pa.RecordBatch) -> None:
    amounts = rows[state.column]
    if state.kind == "object":
        live.value.total += sum(rows["n"].to_pylist())
    elif state.kind == "number":
        getattr(live, what)(amounts[-1:] if what == "put" else amounts)
    elif state.kind == "vector":
        getattr(live, what)(rows["k"], amounts)
    elif state.kind == "matrix":
        getattr(live, what)(rows["u"], rows["k"], amounts)
    elif state.kind == "set":
        getattr(live, what)(rows.select(list(state.keys)))
    else:
        getattr(live, what)(rows.select(list(state.keys)), x=amounts)


def _sums(batch: pa.RecordBatch) -> pa.RecordBatch:
    totals: dict[int, tuple[int, float]] = {}
    for k, n, v in zip(*(batch[name].to_pylist() for name in "knv"), strict=True):
        one, other = totals.get(k, (0, 0.0))
        totals[k] = (one + n, other + v)
    return batch_of([_row(k, n, v) for k, (n, v) in sorted(totals.items())])


def _row(k: int, n: int, v: float) -> Row:
    return {"k": k, "u": k % USERS, "n": int(n), "v": float(v), "m": 0, "i": -1 - k, "p": 0}


def _as_rows(items: pa.RecordBatch) -> pa.RecordBatch:
    columns = zip(*(items[name].to_pylist() for name in "knv"), strict=True)
    return batch_of([_row(k, n, v) for k, n, v in columns])
