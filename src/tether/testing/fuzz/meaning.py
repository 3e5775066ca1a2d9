"""What a random program means, in plain Python: dictionaries, loops, one row at a time.

It shares nothing with the operators that Tether runs but the description of the program.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from tether.testing.fuzz.program import COLUMNS, KEYS, USERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tether.testing.fuzz.program import Program, Row, Stage, State

Slot = dict[str, dict[Any, Any]]
"""What a slot holds: values by key, by state."""


def home(row: Mapping[str, Any], key: Sequence[str], slots: int) -> int:
    """The slot of a row: by its key, or by its own number where there is none."""
    whole = [row[name] for name in key or ("i", "k", "n")]
    return zlib.crc32(repr(whole).encode()) % slots


class Meaning:
    """A run of a program without failures, without Spark, without Tether.

    Args:
        program: The program.
        slots: Numbers of slots that stages got later: stage and first epoch with it, in order.
    """

    def __init__(
        self, program: Program, slots: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        self._program, self._later = program, dict(slots or {})
        self.slots: dict[str, list[Slot]] = {
            stage.name: [fresh(stage) for _ in range(stage.slots)] for stage in program.stages
        }
        self.emitted: list[list[Row]] = []
        """What the last stage has sent on, by epoch."""
        self._taken = {stage.name: [0] * stage.slots for stage in program.stages}
        self._seen: dict[str, list[list[Row]]] = {
            stage.name: [[] for _ in range(stage.slots)] for stage in program.stages
        }
        self._items = 0
        """Feedback items that wait for the first stage."""
        self._clocks: dict[str, tuple[float, float] | None] = {s.name: None for s in program.stages}

    def run(self) -> Iterator[dict[str, list[Slot]]]:
        """The states of all stages after each epoch; the same objects every time."""
        for epoch, rows in enumerate(self._program.epochs):
            self._epoch(epoch, list(rows))
            yield self.slots

    def covered(self, stage: Stage, epoch: int) -> list[set[Any]] | None:
        """Keys of the entries that an answer covers, by slot; None for all."""
        window = self._program.window
        if window is None or window.kind != "sliding":
            return None
        rows = [row for own in self._seen[stage.name] for row in own]
        now = epoch if window.by == "epochs" else max((row["p"] for row in rows), default=0)
        covered: list[set[Any]] = []
        for own in self._seen[stage.name]:
            if window.by == "items":
                covered.append({(row["i"],) for row in own[-window.length :]})
            else:
                panes = range(now - window.length + 1, now + 1)
                covered.append({(p, k) for p in panes for k in range(KEYS)})
        return covered

    def _epoch(self, epoch: int, rows: list[Row]) -> None:
        waiting, self._items = self._items, 0
        for stage in self._program.stages:
            sent: list[Row] = []
            self._divide(stage, epoch)
            number_of_slots = len(self.slots[stage.name])
            by_slot: list[list[Row]] = [[] for _ in range(number_of_slots)]
            for row in rows:
                by_slot[home(row, stage.key, number_of_slots)].append(row)
            ended = self._seconds_ended(stage)
            for number, own in enumerate(by_slot):
                if self._program.policy.kind == "partially-active":
                    own.sort(key=lambda row: [row[name] for name in COLUMNS])
                slot = self.slots[stage.name][number]
                sent += self._slot_epoch(stage, slot, own, waiting)
                before = self._taken[stage.name][number]
                self._taken[stage.name][number] += len(own)
                self._seen[stage.name][number] += own
                if ended or self._ended(epoch, before, len(own)):
                    steps(stage, slot, "window", [])
            self._advance(stage, rows)
            waiting = 0  # only the first stage gets feedback
            self._items += stage.slots if stage.feeds_back else 0
            rows = sent
        self.emitted.append(rows)

    def _divide(self, stage: Stage, epoch: int) -> None:
        """Give the stage the number of slots that it has from this epoch on: by key, if it differs."""
        wanted = self._later.get((stage.name, epoch))
        if wanted is None:
            return
        before = self.slots[stage.name]
        after = self.slots[stage.name] = [fresh(stage) for _ in range(wanted)]
        for slot in before:
            for state in stage.states:
                for key, value in slot[state.name].items():
                    row = dict(zip(state.keys, key, strict=True))
                    after[home(row, stage.key, wanted)][state.name][key] = value
        seen = [row for own in self._seen[stage.name] for row in own]
        self._seen[stage.name] = [
            [row for row in seen if home(row, stage.key, wanted) == slot] for slot in range(wanted)
        ]
        self._taken[stage.name] = [0] * wanted

    def _slot_epoch(self, stage: Stage, slot: Slot, rows: list[Row], items: int) -> list[Row]:
        sent: list[Row] = []
        if items:
            fed = [made(0, n=1, v=0.25)] * items
            steps(stage, slot, "feedback", fed)
        size = self._program.batch_rows
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            steps(stage, slot, "rows", batch)
            if stage.emits == "rows":
                sent += batch
            elif stage.emits == "sums":
                sent += _sums(batch)
        steps(stage, slot, "epoch", [])
        if stage.emits == "totals":
            first = stage.states[0]
            for k in sorted({row["k"] for row in rows}):
                if (k,) in slot[first.name]:
                    sent.append(made(k, **{first.column: slot[first.name][k,]}))
        return sent

    def _ended(self, epoch: int, before: int, rows: int) -> bool:
        window = self._program.window
        if window is None or window.kind != "hopping" or window.by == "seconds":
            return False
        if window.by == "epochs":
            return (epoch + 1) % window.length == 0
        return before // window.length < (before + rows) // window.length

    def _seconds_ended(self, stage: Stage) -> bool:
        """Whether event time, as of the epochs before, has just passed the end of a window."""
        window, clock = self._program.window, self._clocks[stage.name]
        if window is None or window.kind != "hopping" or window.by != "seconds" or clock is None:
            return False
        passed, watermark = clock
        return passed // window.length < watermark // window.length

    def _advance(self, stage: Stage, rows: list[Row]) -> None:
        clock = self._clocks[stage.name]
        times = [row["p"] for row in rows]
        if not times:
            self._clocks[stage.name] = None if clock is None else (clock[1], clock[1])
        elif clock is None:
            self._clocks[stage.name] = (min(times), max(times))
        else:
            self._clocks[stage.name] = (clock[1], max(clock[1], *times))


def fresh(stage: Stage) -> Slot:
    """What a slot holds at first."""
    return {state.name: _empty(state) for state in stage.states}


def _empty(state: State) -> dict[Any, Any]:
    if state.kind in ("number", "object"):
        return {(): 0}
    if state.kind == "vector":
        return {(k,): 0 for k in range(KEYS)}
    if state.kind == "matrix":
        return {(u, k): 0 for u in range(USERS) for k in range(KEYS)}
    return {}


def steps(stage: Stage, slot: Slot, on: str, batch: list[Row]) -> None:
    """Take the steps of one kind, in order."""
    states = {state.name: state for state in stage.states}
    for step in stage.steps:
        if step.on != on:
            continue
        state, values = states[step.state], slot[step.state]
        chosen = [row for row in batch if step.mark is None or row["m"] == step.mark]
        if on in ("rows", "feedback") and not chosen:
            continue
        if step.what == "clear":
            values.clear()
            values.update(_empty(state))
        elif step.what == "halve":
            for key in values:
                values[key] *= 0.5
        elif state.kind == "number" and step.what == "put":
            values[()] = chosen[-1][state.column]
        else:
            for row in chosen:
                _change(state, values, step.what, row)


def _change(state: State, values: dict[Any, Any], what: str, row: Row) -> None:
    key = tuple(row[name] for name in _key_of(state))
    amount = row["n"] if state.kind == "object" else row[state.column]
    if state.kind == "set":
        if what == "add":
            values[key] = 1
        else:
            values.pop(key, None)
    elif what == "put":
        values[key] = amount
    else:
        before = values.get(key, float(state.start) if state.start else 0)
        changes = {
            "add": before + amount,
            "maximum": max(before, amount),
            "minimum": min(before, amount),
        }
        values[key] = changes[what]


def _key_of(state: State) -> Sequence[str]:
    if state.kind in ("number", "object"):
        return ()
    return {"vector": ("k",), "matrix": ("u", "k")}.get(state.kind, state.keys)


def _sums(batch: list[Row]) -> list[Row]:
    sums: dict[int, list[Any]] = {}
    for row in batch:
        one = sums.setdefault(row["k"], [0, 0.0])
        one[0] += row["n"]
        one[1] += row["v"]
    return [made(k, n, v) for k, (n, v) in sorted(sums.items())]


def made(k: int, n: int = 0, v: float = 0.0) -> Row:
    """A row that a stage has made."""
    # As the columns have it: what a whole number starts from may be written as a fraction.
    return {"k": k, "u": k % USERS, "n": int(n), "v": float(v), "m": 0, "i": -1 - k, "p": 0}
