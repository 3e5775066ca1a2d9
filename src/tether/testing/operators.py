"""A conformance check for operators of a user's own."""

from __future__ import annotations

import copy
import math
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.operator import Loss, Operator
from tether.output import Output
from tether.state.arena import Arena
from tether.state.identity import Identity
from tether.state.norms import DURABLE
from tether.state.slot import SlotState
from tether.testing import laws
from tether.testing.laws import broken
from tether.testing.local import slot_of
from tether.testing.oracle import (
    Content,
    Frame,
    apart,
    content,
    contents,
    never_too_small,
    recovered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ME = Identity(query="check", operator="checked", slot=0, slots=1, fingerprint="check")

Epoch = list[pa.RecordBatch]
Seen = tuple[list[dict[str, Any]], dict[str, Content]]
"""What an epoch emitted, and what the state held after it."""


def check_operator(
    operator: Operator,
    batches: Iterable[pa.RecordBatch],
    *,
    key: Sequence[str] | None = None,
    seed: int = 0,
    schedules: int = 10,
) -> None:
    """Try whether an operator keeps the laws that fault tolerance rests on, without Spark.

    The batches are dealt into epochs. A clean run says what each epoch must emit and leave behind. Then
    random schedules of failures are run against it: epochs cut off and retried, processes that come
    and go between epochs, exports to random targets, in one go or settled later, and recoveries. An
    operator that promises to repeat is also given the rows of each epoch in another order; one that
    promises to merge, all rows as one epoch; one that
    promises disjoint slots (``Operator.disjoint``), where ``key`` is given, is run as several. And a
    state that was lost is held against one that was not, over the same later rows: they may come
    apart by ``Operator.growth`` at most, and must send the same rows where ``Operator.sends_losses``
    is False.

    Args:
        operator: As it would be given to ``apply``; it is copied, and not used itself.
        batches: Rows as ``process`` gets them (after ``combine``, if the operator has one).
        key: Key columns; to have ``bind`` called, which needs PySpark.
        seed: Of the first schedule; each further one has the next.
        schedules: Number of schedules.

    Raises:
        LawBrokenError: Which law was broken, with which seed.

    Example:
        >>> class Total(Operator):
        ...     def setup(self, state):
        ...         self.total = state.number("total")
        ...     def process(self, batch, out):
        ...         self.total.add(batch["amount"])
        ...     def on_epoch_end(self, out):
        ...         out.emit({"total": [self.total.value]})
        >>> rows = [pa.RecordBatch.from_pydict({"amount": [1.0, 2.0]}) for _ in range(6)]
        >>> check_operator(Total(), rows)
    """
    given = list(batches)
    if key is not None:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only if asked for

        operator = copy.deepcopy(operator)
        operator.bind(from_arrow_schema(given[0].schema), list(key))
        if operator.disjoint:
            _check_disjoint(operator, given, list(key), seed)
    for number in range(seed, seed + schedules):
        _Schedule(operator, given, number).run()


def _check_disjoint(
    operator: Operator, batches: list[pa.RecordBatch], key: list[str], seed: int
) -> None:
    """Run the operator as several slots, and look for an entry that two of them hold."""
    slots = 2 + seed % 3
    held: dict[tuple[str, Any], int] = {}
    for slot in range(slots):
        state, mine = SlotState.heap(), copy.deepcopy(operator)
        mine.setup(state)
        state.begin(0)
        for batch in batches:
            home = slot_of(pa.Table.from_batches([batch]), key, slots)
            mine.process(batch.filter(pa.array(home == slot)), _Recorder())
        mine.on_epoch_end(_Recorder())
        keyed = [name for name, spec in state.specs().items() if "keys" in spec]
        for entry in ((name, each) for name in keyed for each in content(state[name])):
            other = held.setdefault(entry, slot)
            if other != slot:
                raise broken(
                    f"Operator {operator.name!r}",
                    laws.DISJOINT,
                    seed,
                    f"Slots {other} and {slot}, with rows routed by {key}, both hold the entry "
                    f"{entry[1]} of {entry[0]!r}.",
                )


class _Recorder(Output):
    """Keeps what is emitted and sent back, of whatever schema."""

    def __init__(self) -> None:
        super().__init__(pa.schema([]))
        self._rows: list[dict[str, Any]] = []

    def emit(self, rows: pa.RecordBatch | pa.Table | dict[str, object]) -> None:
        """Keep the rows."""
        self._rows += (pa.table(rows) if isinstance(rows, dict) else rows).to_pylist()

    feedback = emit

    def seen(self) -> list[dict[str, Any]]:
        """All rows emitted since the last call."""
        rows, self._rows = self._rows, []
        return rows


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


class _Schedule:
    """One random schedule of failures."""

    def __init__(self, operator: Operator, batches: list[pa.RecordBatch], seed: int) -> None:
        self._operator, self._seed = operator, seed
        self._draw = random.Random(seed)  # noqa: S311 - a schedule that can be repeated
        self._epochs = self._dealt(batches)
        self._frames: list[Frame] = []
        self._pending: Frame | None = None

    def _dealt(self, batches: list[pa.RecordBatch]) -> list[Epoch]:
        epochs: list[Epoch] = [[]]
        for batch in batches:
            if epochs[-1] and self._draw.random() < 0.6:
                epochs.append([])
            epochs[-1].append(batch)
        return epochs

    def _expect(self, kept: bool, law: str, detail: str) -> None:
        if not kept:
            raise broken(f"Operator {self._operator.name!r}", law, self._seed, detail)

    def run(self) -> None:
        """The clean run twice, then the one with failures."""
        clean, again = self._clean(), self._clean()
        for epoch, (one, other) in enumerate(zip(clean, again, strict=True)):
            self._same(one, other, laws.REPLAY, f"Two runs differ in epoch {epoch}")
        if self._operator.repeats:
            for epoch, (one, other) in enumerate(
                zip(clean, self._clean(self._mixed()), strict=True)
            ):
                self._expect(one[1] == other[1], laws.REPEATS, f"Not so in epoch {epoch}.")
        if self._operator.merges:
            (merged,) = self._clean([[batch for epoch in self._epochs for batch in epoch]])
            self._expect(merged[1] == clean[-1][1], laws.MERGES, "Another state.")
        self._growing()
        directory = Path(tempfile.mkdtemp(prefix="tether-check-"))
        try:
            self._failing(directory / "arena", clean)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _same(self, one: Seen, other: Seen, law: str, where: str) -> None:
        self._expect(one[1] == other[1], law, f"{where}: the state is another one.")
        self._expect(one[0] == other[0], law, f"{where}: the output is another one.")

    def _mixed(self) -> list[Epoch]:
        """The batches of every epoch in another order, and the rows in each of them."""
        return [
            [
                batch.take(pa.array(self._draw.sample(range(batch.num_rows), batch.num_rows)))
                for batch in self._draw.sample(epoch, len(epoch))
            ]
            for epoch in self._epochs
        ]

    def _clean(self, epochs: list[Epoch] | None = None) -> list[Seen]:
        state, operator = SlotState.heap(), copy.deepcopy(self._operator)
        operator.setup(state)
        seen = []
        for epoch, batches in enumerate(self._epochs if epochs is None else epochs):
            state.begin(epoch)
            seen.append(self._apply(operator, state, batches))
            state.commit(epoch)
        return seen

    def _apply(self, operator: Operator, state: SlotState, batches: Epoch) -> Seen:
        out = _Recorder()
        for batch in batches:
            operator.process(batch, out)
        operator.on_epoch_end(out)
        return out.seen(), contents(state)

    def _growing(self) -> None:
        """Lose the state once; from then on the same rows must not take it further away."""
        growth, silent = self._operator.growth, not self._operator.sends_losses
        if growth == math.inf and not silent:
            return  # nothing is promised
        live = SlotState.heap()
        operator = self._declare(live)
        cut = self._draw.randint(0, len(self._epochs) - 1)
        frames: list[Frame] = []
        for epoch in range(cut):
            live.begin(epoch)
            self._apply(operator, live, self._epochs[epoch])
            drift, most = live.divergence(exact=True), DURABLE / 2
            if self._draw.random() < 0.5 or drift > most:
                exports = live.export(min(self._draw.choice([0.0, 0.5]) * drift, most))
                frames.append({name: export.batches for name, export in exports.items()})
            live.commit(epoch)
        made: list[Operator] = []
        other = recovered(lambda state: made.append(self._declare(state)), frames)
        lost = sum(apart(live[name], other[name]) for name in live.specs())
        loss = Loss(slot=0, epoch=cut, backup_epoch=-1, failures=1, bound=lost, theta=lost / 2)
        for epoch in range(cut, len(self._epochs)):
            live.begin(epoch)
            other.begin(epoch)
            if epoch == cut:
                made[0].on_recover(loss)
            sent, _ = self._apply(operator, live, self._epochs[epoch])
            sent_too, _ = self._apply(made[0], other, self._epochs[epoch])
            same = _sorted(sent) == _sorted(sent_too)
            self._expect(not silent or same, laws.SILENT, f"Not so in epoch {epoch}.")
            live.commit(epoch)
            other.commit(epoch)
            now = sum(apart(live[name], other[name]) for name in live.specs())
            detail = (
                f"{lost} was lost before epoch {cut}, and after epoch {epoch} the state is {now} away "
                f"from what it would have been; growth is {growth}."
            )
            grown = growth * lost if lost else 0.0
            self._expect(now <= grown + self._rounding(live), laws.GROWTH, detail)

    def _rounding(self, state: SlotState) -> float:
        """What sums of floats may differ by, of the values in the state."""
        values = (
            abs(value)
            for held in contents(state).values()
            for row in held.values()
            if isinstance(row, dict)
            for value in row.values()
            if isinstance(value, (int, float)) and math.isfinite(value)
        )
        return 1e-9 * math.fsum(values)

    # With failures

    def _failing(self, directory: Path, clean: list[Seen]) -> None:
        arena = Arena.create(directory, _ME)
        state, operator = self._attach(arena)
        for epoch, expected in enumerate(clean):
            before = contents(state)
            if self._draw.random() < 0.4:
                self._cut_off(state, operator, epoch)
                self._expect(contents(state) == before, laws.ROLLBACK, f"In epoch {epoch}.")
            state.begin(epoch)
            seen = self._apply(operator, state, self._epochs[epoch])
            self._same(seen, expected, laws.OUTLIVES, f"After failures, in epoch {epoch}")
            self._back_up(state, epoch)
            state.commit(epoch)
            self._check_backups(state, epoch)
            if self._draw.random() < 0.5:  # another process goes on
                arena.release()
                found = Arena.attach(directory, _ME)
                assert isinstance(found, Arena)
                arena = found
                state, operator = self._attach(arena)
                held = contents(state) == expected[1]
                self._expect(held, laws.OUTLIVES, f"A new process sees another state, {epoch=}.")
        arena.release()
        self._lose(len(clean))

    def _attach(self, arena: Arena) -> tuple[SlotState, Operator]:
        state, operator = SlotState.open(arena), copy.deepcopy(self._operator)
        operator.setup(state)
        return state, operator

    def _cut_off(self, state: SlotState, operator: Operator, epoch: int) -> None:
        state.begin(epoch)
        out = _Recorder()
        batches = self._epochs[epoch]
        for batch in batches[: self._draw.randint(0, len(batches))]:
            operator.process(batch, out)
        if self._draw.random() < 0.5:
            state.export(0.0) if state.pending is None else state.pending.settle()
        if self._draw.random() < 0.3:
            state.commit(epoch)
        state.rollback()

    def _back_up(self, state: SlotState, epoch: int) -> None:
        """At random: settle a pending export or give it up, begin one, make one, or do nothing."""
        pending, chance = state.pending, self._draw.random()
        if pending is not None:
            if chance < 0.5:
                assert self._pending is not None
                pending.settle()
                self._frames.append(self._pending)
            elif chance < 0.7:
                pending.abandon()
            return
        target = self._draw.choice([0.0, 0.3, 0.8]) * state.divergence(exact=True)
        if chance < 0.3:
            begun = state.begin_export(target)
            if begun is not None:
                self._pending = {name: export.batches for name, export in begun.exports.items()}
        elif chance < 0.8:
            exports = state.export(target)
            left = state.divergence(exact=True)
            detail = f"The target was {target}, and {left} is left, in epoch {epoch}."
            self._expect(left <= target, laws.WITHIN, detail)
            if exports:
                self._frames.append({name: export.batches for name, export in exports.items()})

    def _declare(self, state: SlotState) -> Operator:
        operator = copy.deepcopy(self._operator)
        operator.setup(state)
        return operator

    def _check_backups(self, state: SlotState, epoch: int) -> None:
        backup = recovered(self._declare, self._frames)
        for name in state.specs():
            enough = never_too_small(state[name], backup[name])
            detail = f"State {name!r} is further from its backup than it says, in epoch {epoch}."
            self._expect(enough, laws.NEVER_TOO_SMALL, detail)

    def _lose(self, epoch: int) -> None:
        """Recover once and twice, and let the operator compensate."""
        once = recovered(self._declare, self._frames)
        once.begin(1)
        whole = {name: export.batches for name, export in once.export_full().items()}
        once.rollback()
        twice = recovered(self._declare, [*self._frames, whole, whole])
        self._expect(contents(once) == contents(twice), laws.IDEMPOTENT, "The states differ.")
        state = SlotState.heap()
        operator = self._declare(state)
        state.begin(epoch)
        operator.on_recover(
            Loss(slot=0, epoch=epoch, backup_epoch=-1, failures=1, bound=1.0, theta=0.5)
        )
        state.rollback()
