"""One history of a slot with all primitives, beside a model of it, beside what losses would leave."""

from __future__ import annotations

import copy
import math
import shutil
import tempfile
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.state.conftest import ME
from tests.state.plain import Content, Items, Plain, is_full
from tests.state.workload import Tally

from tether.core.errors import BadValueError
from tether.state import Arena, SlotState
from tether.testing.oracle import content, distance, recovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROWS, COLUMNS = 3, 4
SIZE = ROWS * COLUMNS
DENSE = ("vector", "matrix")

GIVEN: dict[str, dict[str, list[str]]] = {
    "number": {"add": ["value"], "put": ["value"], "maximum": ["value"], "minimum": ["value"]},
    "vector": {"add": ["value"], "put": ["value"], "maximum": ["value"], "minimum": ["value"]},
    "matrix": {"add": ["value"], "put": ["value"], "maximum": ["value"], "minimum": ["value"]},
    "sums": {"add": ["n", "x"], "put": ["n"]},
    "extremes": {"maximum": ["high"], "minimum": ["low"], "put": ["low"]},
    "clipped": {"maximum": ["up"], "minimum": ["down"], "add": ["down"], "put": ["up", "down"]},
    "flags": {"add": ["n", "f"], "put": ["f"], "maximum": ["f"]},
    "keys": {"add": [], "put": []},
    "set": {"add": ["member"], "discard": []},
    "object": {"add": ["value"]},
}
"""Which columns an operation of a primitive is given."""
KEPT = ("live", "durable", "frames", "pending", "clears", "known_clears", "survivors")
"""What a rollback takes back."""
MOST_SURVIVORS = 3
CLEARED = tuple(name for name in GIVEN if name != "object")


def declare(state: SlotState, norm: str) -> None:
    """All primitives, with weights that change what their differences count."""
    key = {"k": pa.int64()}
    state.number("number", weights={"value": 0.5})
    state.vector("vector", SIZE, divergence=norm)
    state.matrix("matrix", ROWS, COLUMNS, dtype="int64", divergence=norm, weights={"value": 2.0})
    state.table("sums", key, {"n": "int64", "x": "float64"}, divergence=norm)
    state.table(
        "extremes",
        key,
        {"low": "float64", "high": "int64"},
        divergence=norm,
        starts={"low": math.inf, "high": -math.inf},
    )
    state.table(
        "clipped",
        key,
        {"up": "float64", "down": "int64"},
        divergence=norm,
        weights={"down": 0.25},
        starts={"up": -2.0, "down": 5},
    )
    state.table("flags", key, {"n": "int64", "f": "uint8"}, divergence=norm)
    state.table("keys", key, {}, divergence="count")
    state.set("set", key)
    state.object("object", Tally())


def items_of(name: str, operation: str, drawn: list[tuple[int, int]]) -> Items:
    """Drawn keys and values as a primitive takes them."""
    items: Items = []
    for key, value in drawn:
        columns = {
            column: 1 if column == "member" else abs(value) if column == "f" else value
            for column in GIVEN[name][operation]
        }
        if name in DENSE:
            items.append((key, columns))
        else:
            items.append(((() if name in ("number", "object") else (key,)), columns))
    return items


def apply(state: SlotState, name: str, operation: str, items: Items) -> None:
    """The same change to the real primitive."""
    primitive: Any = state[name]
    keys = [key for key, _ in items]
    columns = {column: [given[column] for _, given in items] for column in GIVEN[name][operation]}
    if name == "number":
        values = columns["value"]
        if operation == "put":
            for value in values:
                primitive.put(value)
        else:
            getattr(primitive, operation)(values)
    elif name == "vector":
        getattr(primitive, operation)(keys, columns["value"])
    elif name == "matrix":
        at = np.array(keys, int)
        getattr(primitive, operation)(at // COLUMNS, at % COLUMNS, np.array(columns["value"], int))
    elif name == "object":
        primitive.value.count += sum(columns["value"])
    else:
        array = pa.array([key for (key,) in keys], pa.int64())
        columns.pop("member", None)
        getattr(primitive, operation)([array], **columns)


def shown(state: SlotState, name: str) -> Content:
    """What the real primitive holds, in the form of the plain one."""
    found = content(state[name])
    return {(): {"value": int(found["image"])}} if name == "object" else found


class History:
    """A state that is taken through steps; after each, all that must hold is checked.

    Steps that cannot be taken just now do nothing, so that any of them can be left out.

    Args:
        norm: Divergence of all primitives that have a choice.
        arena: Whether the state is in an arena, where other processes go on with it.
    """

    def __init__(self, norm: str, *, arena: bool) -> None:
        self.norm = norm
        self.arena: Any = None
        self.state = SlotState.heap()
        if arena:
            self.arena = Arena.create(Path(tempfile.mkdtemp()) / "a", ME)
            self.state = SlotState.open(self.arena)
        declare(self.state, norm)
        self.specs: dict[str, Any] = {name: self.state[name].spec for name in GIVEN}
        self.plain = {
            name: Plain(spec, SIZE if name in DENSE else 0) for name, spec in self.specs.items()
        }
        self.live = {name: plain.empty() for name, plain in self.plain.items()}
        self.durable = {name: plain.empty() for name, plain in self.plain.items()}
        """What the frames written so far amount to."""
        self.frames: list[dict[str, Any]] = []
        self.pending: tuple[dict[str, Any], Counter[str]] | None = None
        self.clears: Counter[str] = Counter()
        self.known_clears: Counter[str] = Counter()
        """How often each was cleared, and how often it had been when a whole part was taken out."""
        self.survivors: list[dict[str, tuple[float, Content]]] = []
        """What losses would have left, with what was told at that time."""
        self._begin()

    def close(self) -> None:
        """Remove the arena."""
        if self.arena is not None:
            self.arena.release()
            shutil.rmtree(self.arena.directory.parent)

    # Epochs: one is always being applied, so that every step can change something.

    def _begin(self) -> None:
        declare(self.state, self.norm)  # as who attaches does, after a rollback if one is due
        self._check(GIVEN)
        self.state.begin(self.state.version + 1)
        self.saved = [copy.copy(getattr(self, name)) for name in KEPT]

    def next_epoch(self, *, another_process: bool) -> None:
        """Commit, and go on here or elsewhere."""
        self.state.commit(self.state.epoch)
        self._attach_anew(another_process)
        self._begin()

    def try_again(self, *, committed: bool, another_process: bool) -> None:
        """Roll the epoch back, perhaps after its commit, perhaps in another process."""
        if committed:
            self.state.commit(self.state.epoch)
        self._attach_anew(another_process)
        self.state.rollback()
        for name, kept in zip(KEPT, self.saved, strict=True):
            setattr(self, name, copy.copy(kept))
        assert (self.state.pending is None) == (self.pending is None)
        self._begin()

    def _attach_anew(self, another_process: bool) -> None:
        if self.arena is not None and another_process:
            self.arena.release()
            self.arena = Arena.attach(self.arena.directory, ME)
            self.state = SlotState.open(self.arena)

    # Changes

    def change(self, *, operation: str, drawn: list[tuple[int, int]], only: str | None) -> None:
        """Change one primitive, or all that have such an operation."""
        names = [name for name in named(only, GIVEN) if operation in GIVEN[name]]
        for name in names:
            items = items_of(name, operation, drawn)
            apply(self.state, name, operation, items)
            # What is put into a set is in it, however often.
            same = "put" if name == "set" and operation == "add" else operation
            self._follow(name, partial(self.plain[name].changed, operation=same, items=items))
        self._check(names)

    def clear(self, *, only: str | None) -> None:
        """Clear one primitive, or all, as at the end of a window."""
        state: Any = self.state
        for name in named(only, CLEARED):
            state[name].clear()
            empty = self.plain[name].empty()
            self._follow(name, lambda _, empty=empty: empty)
            self.clears[name] += 1
        self._check(named(only, CLEARED))

    def shrink(self) -> None:
        """Multiply in place."""
        vector: Any = self.state["vector"]
        vector *= -0.5

        def changed(held: Content) -> Content:
            return {key: {"value": row["value"] * -0.5} for key, row in held.items()}

        self._follow("vector", changed)
        self._check(["vector"])

    def _follow(self, name: str, changed: Callable[[Content], Content]) -> None:
        """Let the model and all survivors do what the state did."""
        self.live[name] = changed(self.live[name])
        self.survivors = [
            {**survivor, name: (survivor[name][0], changed(survivor[name][1]))}
            for survivor in self.survivors
        ]

    # Backups

    def export(self, *, limit: float, whole: bool) -> None:
        """Back up in part, or all."""
        if self.state.pending is not None:
            return
        exports = self.state.export_full() if whole else self.state.export(limit)
        self._written({name: e.batches for name, e in exports.items()}, self.clears)
        assert self.state.divergence(exact=True) <= (0.0 if whole else limit)
        if whole or not limit:
            assert self.durable == self.live
        self._check(exports)

    def begin_export(self, *, limit: float) -> None:
        """Begin a backup in the background."""
        if self.state.pending is not None:
            return
        before = self.state.divergence(exact=True)
        begun = self.state.begin_export(limit)
        now = self.state.divergence(exact=True)
        assert now == pytest.approx(before)  # nothing is durable yet
        if begun is None:
            assert now <= limit
            return
        assert begun.divergence_after <= limit
        parts = {name: export.batches for name, export in begun.exports.items()}
        self.pending = parts, Counter(self.clears)

    def end_export(self, *, settled: bool) -> None:
        """The backup in the background is durable, or never will be."""
        pending, kept = self.state.pending, self.pending
        if pending is None:
            return
        assert kept is not None
        with pytest.raises(BadValueError, match="written"):
            self.state.export_full()
        if settled:
            pending.settle()
            self._written(*kept)
        else:
            pending.abandon()
        self.pending = None
        self._check(kept[0])

    def _written(self, parts: dict[str, Any], clears: Counter[str]) -> None:
        """Take parts as durable, given how often each was cleared when they were taken out."""
        self.frames.append(parts)
        for name, batches in parts.items():
            self.durable[name] = self.plain[name].written(self.durable[name], batches)
            if is_full(batches):
                self.known_clears[name] = clears[name]

    def lose(self) -> None:
        """Note what would be left of each primitive if the state were lost now."""
        left = recovered(lambda state: declare(state, self.norm), self.frames)
        assert {name: shown(left, name) for name in GIVEN} == self.durable
        assert left.divergence(exact=True) == 0.0
        if len(self.survivors) == MOST_SURVIVORS:
            self.survivors = self.survivors[1:]
        told = {name: self.state[name].divergence() for name in GIVEN}
        self.survivors.append({name: (told[name], self.durable[name]) for name in GIVEN})

    # What must hold

    def look_closer(self) -> None:
        """Asked exactly, the divergence is not larger than it need be."""
        for name in GIVEN:
            told, live = self.state[name].divergence(exact=True), self.live[name]
            backup, empty = self.durable[name], self.plain[name].empty()
            assert self._covers(name, told, live, backup), name
            if self.clears[name] != self.known_clears[name]:  # only a bound, by way of nothing
                most = self._apart(name, live, empty) + self._apart(name, empty, backup)
            else:
                most = self._apart(name, live, backup)
            slack = most * 1e-9 + 1e-4  # squares that cancel leave some
            assert told <= most + slack, (name, told, most)

    def _check(self, names: Iterable[str]) -> None:
        """The model agrees, and what is told, and was told, covers what would be, or was, lost."""
        for name in names:
            primitive, live, backup = self.state[name], self.live[name], self.durable[name]
            assert shown(self.state, name) == live, name
            assert self._covers(name, primitive.divergence(), live, backup), name
            if not primitive.dirty_entries():
                assert backup == live, name
            for survivor in self.survivors:
                told, held = survivor[name]
                assert self._covers(name, told, live, held), name

    def _distance(self, name: str, one: Content, other: Content) -> Fraction | float:
        if name == "object":
            return Fraction(abs(one[()]["value"] - other[()]["value"]))
        return distance(self.specs[name], one, other)

    def _apart(self, name: str, one: Content, other: Content) -> float:
        found = self._distance(name, one, other)
        return math.sqrt(found) if self.specs[name]["divergence"] == "l2" else float(found)

    def _covers(self, name: str, told: float, one: Content, other: Content) -> bool:
        if math.isinf(told):
            return True
        exact = Fraction(told)
        if self.specs[name]["divergence"] == "l2":
            exact *= exact
        return bool(exact >= self._distance(name, one, other))


def named(only: str | None, names: Iterable[str]) -> list[str]:
    """The one primitive that is meant, or all."""
    return list(names) if only is None else [only]
