"""The engine's cluster in one process: slots run one after the other."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from tether.core.errors import ChangedProgramError
from tether.core.ids import Epoch, Seat, Slot
from tether.engine.messages import resident_id
from tether.engine.slot.program import Program
from tether.engine.slot.seat import SeatWork
from tether.protocols.copies import IDLE, beside, seated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tether.chaos.faults import Point
    from tether.core.graph import SlotId
    from tether.engine.messages import Purpose
    from tether.engine.operators import CopyPlan, QueryOperator
    from tether.engine.ports import Orders, Statuses
    from tether.engine.slot.heap import HeapHost
    from tether.local.nodes import Nodes
    from tether.protocols.copies import Seats

ATTEMPTS = 4
"""How often a task is tried, as by Spark."""


AT_DRIVER = Slot(-1)
"""Used as the slot of faults that strike the driver."""


class TaskKilled(BaseException):
    """Ends a task as if its process had been killed: nothing is cleaned up."""


class DriverKilled(BaseException):
    """Ends the driver."""


class Feed(Protocol):
    """The rows of one epoch."""

    def by_slot(
        self, operator: QueryOperator, emitted: Mapping[str, list[list[pa.RecordBatch]]]
    ) -> Sequence[Sequence[pa.RecordBatch]]:
        """The rows of each slot of an operator, given the output of earlier operators."""
        ...


@dataclass(frozen=True, kw_only=True)
class StruckProgram(Program):
    """A program whose fault points are decided here, in memory."""

    strike: Callable[[Point, str, Slot, Epoch], bool]
    """Given a point, an operator, a slot and an epoch; raises, or says whether to forget the state."""

    def reach(self, point: Point, slot: Slot) -> bool:
        """A slot has come to a point of the protocol."""
        return self.strike(point, self.control.operator, slot, self.control.epoch)


def _unstruck(program: Program) -> Program:
    """The program without faults, for copies: faults strike slots only."""
    return Program(**{one.name: getattr(program, one.name) for one in fields(Program)})


class LocalCluster:
    """Runs the slots of some operators; see :class:`tether.engine.ports.Cluster`.

    Args:
        operators: By name, upstream ones first.
        host: Keeps their resident states.
        strike: Decides which faults strike; none by default.
        nodes: The nodes that seats are on, if slots have copies.
        copies: Which slots have copies.
    """

    def __init__(
        self,
        operators: Mapping[str, QueryOperator],
        host: HeapHost,
        strike: Callable[[Point, str, Slot, Epoch], bool] | None = None,
        *,
        nodes: Nodes | None = None,
        copies: CopyPlan | None = None,
    ) -> None:
        self._operators, self._host, self._strike = operators, host, strike
        self._nodes = nodes
        self._copied = {} if copies is None else dict(copies.copied)
        self._spare = 0 if copies is None or copies.gain is None else 1
        self._seats: dict[str, Seats] = {}
        self._at: dict[tuple[str, Seat], str] = {}
        """The node of each seat."""
        self._turn = self._attempts = 0
        self.silent: frozenset[SlotId] = frozenset()
        """Slots that process nothing and give no output, as if their state were lost for now."""
        self.emitted: dict[str, list[list[pa.RecordBatch]]] = {}
        """What each slot of each operator emitted in the last epoch that ran."""

    def run(
        self, orders: Orders, epoch: Epoch, given: Feed, only: Collection[str] | None = None
    ) -> Statuses:
        """Run an epoch in every slot."""
        self._turn += 1
        statuses: Statuses = {}
        self.emitted = {}
        for name, operator in self._operators.items():
            if only is not None and name not in only:
                continue
            program = self._program(orders, name, epoch)
            seats = program.control.seats
            given_rows = given.by_slot(operator, self.emitted)
            out: list[list[pa.RecordBatch]] = [[] for _ in range(operator.slots)]
            for seat in map(Seat, range(operator.slots if seats is None else len(seats.runs))):
                slot = Slot(seat) if seats is None else seats.runs[seat]
                rows = [] if slot == IDLE else given_rows[slot]
                work, emitted = self._try(program, seat, rows)
                if seats is None or seats.speaks(seat):
                    out[slot] = emitted
                if (report := work.report) is not None:
                    statuses[report[0]] = report[1]
            self.emitted[name] = out
        if self._strike is not None:
            self._strike("after-job", "", AT_DRIVER, epoch)
        return statuses

    def _try(
        self,
        program: Program,
        seat: Seat,
        rows: Sequence[pa.RecordBatch],
    ) -> tuple[SeatWork, list[pa.RecordBatch]]:
        left = ATTEMPTS
        while True:
            left -= 1
            work = self._work(program, seat)
            try:
                return work, list(work.run(rows))
            except TaskKilled:
                if not left:
                    raise

    def _work(self, program: Program, seat: Seat) -> SeatWork:
        self._attempts += 1
        host, seats = self._host, program.control.seats
        if self._nodes is not None:
            key = (program.control.operator, seat)
            self._at[key] = self._nodes.instead_of(self._at[key], seat)
            host = host.at(self._nodes.executor(self._at[key]))
            if seats is not None and not seats.speaks(seat):
                program = _unstruck(program)
        return SeatWork(program, seat, f"{program.control.run}-{self._attempts}", host)

    def _program(
        self, orders: Orders, operator: str, epoch: Epoch, purpose: Purpose = "epoch"
    ) -> Program:
        program = orders.program(operator, epoch, self._turn, purpose)
        silent = frozenset(slot.slot for slot in self.silent if slot.operator == operator)
        if silent:
            skipped = program.control.skipped | silent
            control = msgspec.structs.replace(program.control, skipped=skipped)
            program = replace(program, control=control)
        if self._strike is None:
            return program
        known = {one.name: getattr(program, one.name) for one in fields(Program)}
        return StruckProgram(**known, strike=self._strike)

    # ---- between epochs ------------------------------------------------------------------------

    def ask(self, orders: Orders, purpose: Purpose, epoch: Epoch) -> Statuses:
        """Run a task without rows in every slot; give the reports of those that made one."""
        found: Statuses = {}
        for name, operator in self._operators.items():
            program = self._program(orders, name, epoch, purpose)
            seats = program.control.seats
            for seat in map(Seat, range(operator.slots if seats is None else len(seats.runs))):
                work = self._work(program, seat)
                for _ in work.run(()):
                    pass
                if (report := work.report) is not None:
                    found[report[0]] = report[1]
        return found

    def clean(self, orders: Orders, epoch: Epoch) -> None:
        """Remove all resident state."""
        del orders, epoch
        self._host.lose_all()

    def forget_reports(self) -> None:
        """Does nothing: no reports are kept."""

    def place(self, *, stay: bool = False) -> None:
        """Assign the seats of operators that have copies."""
        nodes = self._nodes
        if stay or nodes is None:
            return
        for name, operator in self._operators.items():
            copied = self._copied.get(name, ())
            places = nodes.places(operator.slots, len(copied) + self._spare)
            self._at |= {(name, Seat(seat)): place for seat, place in enumerate(places)}
            if copied or self._spare:
                found = seated(operator.slots, copied, places, nodes.standing_by)
                self._seats[name] = found or beside(operator.slots, copied, places)

    def lopsided(self, places: Iterable[list[str]]) -> bool:
        """Always False: there is only one place."""
        del places
        return False

    def shaken(self) -> bool:
        """Always False: executors do not die on their own here."""
        return False

    def lose(self, names: Collection[str]) -> None:
        """Remove the resident state on nodes that have died."""
        for (name, seat), place in self._at.items():
            if place not in names:
                continue
            seats, slots = self._seats.get(name), self._operators[name].slots
            slot = Slot(seat) if seats is None else seats.runs[seat]
            self._host.lose_resident(
                name, resident_id(slots, slot, None if seats is None else seat)
            )

    def seats(self) -> dict[str, Seats]:
        """The seats of each operator that has copies; empty without copies."""
        return self._seats

    def reseat(self, operator: str, seats: Seats) -> None:
        """Let rows of an operator go to other seats."""
        self._seats[operator] = seats
        self._copied[operator] = tuple(sorted(seats.runs[seat] for seat in seats.copies))

    def executors(self) -> int:
        """Number of nodes that are alive."""
        return 1 if self._nodes is None else self._nodes.alive

    def release(self) -> None:
        """Does nothing: nothing is held."""

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """Not possible: rows are given by slot, and the slot of a key is not known."""
        del keys
        raise ChangedProgramError(
            f"The state of {operator!r} cannot be split into {slots} slots here.",
            why="A run in one process is given its rows by slot, and cannot tell the slot of a key.",
            do="Start it with the old number of slots.",
        )
