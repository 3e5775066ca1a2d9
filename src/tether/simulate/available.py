"""Simulates the consistency manager: queries in a chain, with replicas, whose inputs fall silent.

Time is whole ticks. Logs are in memory, but views, writers and the manager are those that run on Spark.
A node's operator depends on the order of its rows and on all rows before, so a stable row that is
missing, doubled or out of order changes everything after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from tether.protocols.consistency import (
    CopyState,
    Done,
    DropCopy,
    Enter,
    Handling,
    Look,
    Manager,
    Release,
    Switch,
    TentativeLost,
    Undo,
    Wait,
    manage,
)
from tether.sources.exchange.entries import DataFile, Entry
from tether.sources.exchange.view import ReplicaView, rows_between
from tether.sources.exchange.writer import ExchangeWriter, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tether.protocols.consistency import Instruction, Step

Row = tuple[int, int]
"""Tuple time and value."""
BUCKET = 2
Manage = Callable[[Manager, Look | TentativeLost, Handling], "Step"]


class MemoryLog:
    """An exchange in memory: what :class:`ExchangeWriter` and views need of a log."""

    def __init__(self, name: str) -> None:
        self.url = self.name = name
        self.folder = self
        self.written: list[Entry] = []
        self.rows: dict[str, list[Row]] = {}

    def first(self) -> int:
        """Nothing is ever trimmed."""
        return 0

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        assert entry.number == len(self.written)
        self.written.append(entry)

    def entries(self, first: int, end: int | None = None) -> Iterable[Entry]:
        """Entries from a number on."""
        return self.written[first:end]

    def delete(self, names: Iterable[str]) -> None:
        """Empty: entries have no names here."""
        for name in names:
            self.rows.pop(name, None)

    def sizes(self, below: str) -> dict[str, int]:
        """Does nothing: readers leave no notes here."""
        del below
        return {}

    def keep(self, rows: list[Row], boundary: int | None) -> Rows:
        """Rows as a task would write them: ordered by time, and not named by an entry yet."""
        ordered = sorted(rows, key=lambda row: row[0])
        name = f"{self.name}-{len(self.rows)}"
        if not ordered:
            return Rows(boundary=boundary)
        self.rows[name] = ordered
        low, high = ordered[0][0], ordered[-1][0]
        file = DataFile(name=name, rows=len(rows), size=0, checksum=0, low=low, high=high)
        return Rows(files=(file,), digest=hash(tuple(sorted(rows))), boundary=boundary)

    def stable(self) -> list[Row]:
        """All stable rows, in their order."""
        return [
            row
            for entry in self.written
            if entry.kind == "stable"
            for file in entry.files
            for row in self.rows[file.name]
        ]


class Source:
    """A producer: a row and a boundary every tick, delivered late while it is cut off."""

    def __init__(self, name: str, number: int, cut_off: Sequence[tuple[int, int]]) -> None:
        self.log = MemoryLog(name)
        self._number, self._cut_off = number, cut_off
        self._writer = ExchangeWriter(self.log, name, clock=lambda: self._now)  # type: ignore[arg-type]
        self._held: list[tuple[int, list[Row]]] = []
        self._now = 0.0

    def tick(self, now: int) -> None:
        """Make this tick's rows, and deliver what can be delivered."""
        self._now = float(now)
        # Several rows have the same time, also from other inputs, so that the order must be decided.
        rows = [(now, 10 * now + self._number), (now, -now)] if (now + self._number) % 3 else []
        self._held.append((now, rows))
        if any(start <= now < start + length for start, length in self._cut_off):
            return
        for made, held in self._held:
            self._writer.add(made, "stable", self.log.keep(held, made + 1))
        self._held.clear()


@dataclass
class Seen:
    """The figures by which a run is judged."""

    phases: list[str] = field(default_factory=lambda: ["stable"])
    done: list[bool] = field(default_factory=list)
    releases: list[tuple[int, Release]] = field(default_factory=list)
    withdrawn: list[Undo] = field(default_factory=list)
    switches: list[tuple[int, Switch]] = field(default_factory=list)
    worst_wait: float = 0.0
    """Longest time from a row's arrival to its release of any kind, if its bucket was not yet given."""
    needless: int = 0
    """Failures that began although a replica of every input had the complete next bucket."""


class Node:
    """One replica of a query: SUnion, an operator that depends on everything, an exchange.

    Args:
        name: Of its exchange.
        inputs: For each input the exchanges of its replicas.
        handling: What to do while an input is missing.
        cut_off: (input, replica, start, length): what it cannot reach in that time.
        down: (start, length): when it does not run; it restarts from what is durable.
        manage: The protocol; another one in tests of the tests.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Sequence[MemoryLog]],
        handling: Handling,
        *,
        cut_off: Sequence[tuple[int, int, int, int]] = (),
        down: Sequence[tuple[int, int]] = (),
        manage: Manage = manage,
    ) -> None:
        self.log, self.seen = MemoryLog(name), Seen()
        self._inputs, self._handling = inputs, handling
        self._cut_off, self._down, self._manage = cut_off, down, manage
        self._now = 0.0
        self._writer = ExchangeWriter(self.log, name, clock=lambda: self._now)  # type: ignore[arg-type]
        # Durable, as on Spark the offset log and backups are:
        self.manager, self._epoch, self._state = Manager(), 0, 0
        self._low = [[0] * len(replicas) for replicas in inputs]
        # Lost in a crash:
        self._copy: int | None = None
        self._views = self._empty_views()
        self._was_down = False

    def _empty_views(self) -> list[list[ReplicaView]]:
        return [[ReplicaView(BUCKET, first) for first in lows] for lows in self._low]

    def tick(self, now: int) -> None:
        """Look at the inputs, and carry out the manager's instructions until it waits."""
        self._now = float(now)
        if any(start <= now < start + length for start, length in self._down):
            self._was_down = True
            return
        if self._was_down:
            self._was_down, self._copy, self._views = False, None, self._empty_views()
            self._do(*self._manage(self.manager, TentativeLost(), self._handling), now)
            self._writer.withdraw()
        self._read(now)
        for _ in range(4):  # an epoch takes some time
            waiting = [
                each for view in self._all_views() for each in view.waiting(self.manager.stable)
            ]
            look = Look(
                now=self._now,
                inputs=tuple(tuple(view.known() for view in views) for views in self._views),
                waiting=tuple(waiting),
            )
            state, asked = self._manage(self.manager, look, self._handling)
            self._note_waits(asked, look)
            self._do(state, asked, now)
            if any(isinstance(each, Wait) for each in asked):
                break

    def _all_views(self) -> list[ReplicaView]:
        return [view for views in self._views for view in views]

    def _read(self, now: int) -> None:
        for number, (logs, views) in enumerate(zip(self._inputs, self._views, strict=True)):
            for replica, (log, view) in enumerate(zip(logs, views, strict=True)):
                blocked = any(
                    (number, replica) == (of, at) and start <= now < start + length
                    for of, at, start, length in self._cut_off
                )
                for entry in () if blocked else log.entries(view.next):
                    view.take(entry, self._now)
                view.forget_below(self._low[number][replica])

    def _do(self, state: Manager, asked: Sequence[Instruction], now: int) -> None:
        """One epoch: all of it durable, or nothing."""
        for each in asked:
            match each:
                case CopyState(bucket=bucket):
                    assert bucket == self.manager.stable
                    self._copy = self._state
                case DropCopy():
                    self._copy = None
                case Release():
                    self._release(each)
                    self.seen.releases.append((now, each))
                case Enter(phase=phase):
                    self.seen.phases.append(phase)
                case Done(forced=forced):
                    self.seen.done.append(forced)
                case Undo():
                    self.seen.withdrawn.append(each)
                case Switch():
                    self.seen.switches.append((now, each))
                case Wait():
                    pass  # the next step looks again
                case _:
                    assert_never(each)
        self.manager = state
        if any(isinstance(each, Release) for each in asked):
            self._low = [
                [view.needed_from(state.stable) for view in views] for views in self._views
            ]

    def _release(self, release: Release) -> None:
        tentative = release.kind == "tentative"
        rows = self.rows_of(release)
        state = self._copy if tentative else self._state
        assert state is not None, "tentative rows without a copy of the state"
        out = []
        for time_, number, value in rows:
            state = (state * 31 + time_ * 7 + number * 3 + value) % 1_000_003
            out.append((time_, state))
        if tentative:
            self._copy = state
        else:
            self._state = state
        kept = self.log.keep(out, release.end * BUCKET)
        self._writer.add(self._epoch, release.kind, kept)
        self._epoch += 1

    def rows_of(self, release: Release) -> list[tuple[int, int, int]]:
        """The rows of a release: (tuple time, input, value), in their fixed order."""
        rows = []
        for number, replica in enumerate(release.replicas):
            log, view = self._inputs[number][replica], self._views[number][replica]
            for wanted in rows_between(
                log.entries(view.first, view.next),
                release.first * BUCKET,
                release.end * BUCKET,
                tentative=release.kind == "tentative",
            ):
                found = log.rows[wanted.file.name]
                rows += [
                    (time_, number, value)
                    for time_, value in found
                    if wanted.first <= time_ < wanted.end
                ]
        # By time and input; then by value, because replicas may order equal times differently.
        return sorted(rows)

    def _note_waits(self, asked: Sequence[Instruction], look: Look) -> None:
        whole = min(max(each.complete for each in replicas) for replicas in look.inputs)
        for release in (each for each in asked if isinstance(each, Release)):
            if release.kind == "tentative" and self.manager.ahead == self.manager.stable < whole:
                self.seen.needless += 1
            if release.end <= self.manager.ahead:
                continue  # a correction, for which no reader waited
            waits = [
                look.now - each.arrived
                for each in look.waiting
                if max(each.first, release.first, self.manager.ahead) < release.end
                and each.last >= max(release.first, self.manager.ahead)
            ]
            self.seen.worst_wait = max(self.seen.worst_wait, *waits, 0.0)


def truth(sources: Sequence[MemoryLog | list[Row]], end: int) -> list[Row]:
    """The stable rows of a node over these inputs if nothing ever fails, up to a tuple time."""
    rows = sorted(
        (time_, number, value)
        for number, source in enumerate(sources)
        for time_, value in (source if isinstance(source, list) else source.stable())
        if time_ < end
    )
    state, out = 0, []
    for time_, number, value in rows:
        state = (state * 31 + time_ * 7 + number * 3 + value) % 1_000_003
        out.append((time_, state))
    return out
