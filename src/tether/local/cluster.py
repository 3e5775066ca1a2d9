"""The engine's cluster in one process: slots run one after the other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

from tether.core.errors import ChangedProgramError
from tether.core.graph import SlotId
from tether.core.ids import Epoch, Slot, each_slot
from tether.engine.slot.beside import SlotBesideEpochs
from tether.engine.slot.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tether.chaos.faults import Point
    from tether.engine.messages import Purpose
    from tether.engine.operators import QueryOperator
    from tether.engine.ports import Orders, Statuses
    from tether.engine.slot.heap import HeapHost
    from tether.protocols.copies import Seats

ATTEMPTS = 4
"""How often a task is tried, as by Spark."""


AT_DRIVER = Slot(-1)
"""Where a fault strikes that strikes no slot."""


class TaskKilled(BaseException):
    """A task ends here, as if its process had been killed: nothing of it is tidied up."""


class DriverKilled(BaseException):
    """The driver ends here."""


class Feed(Protocol):
    """The rows of one epoch."""

    def by_slot(
        self, operator: QueryOperator, emitted: Mapping[str, list[list[pa.RecordBatch]]]
    ) -> Sequence[Sequence[pa.RecordBatch]]:
        """The rows of each of an operator's slots, seeing what operators before it have emitted."""
        ...


@dataclass(frozen=True, kw_only=True)
class StruckProgram(Program):
    """A program whose fault points are decided here, in memory."""

    strike: Callable[[Point, str, Slot, Epoch], bool]
    """Given a point, an operator, a slot and an epoch; raises, or says whether to forget the state."""

    def reach(self, point: Point, slot: Slot) -> bool:
        """A slot has come to a point of the protocol."""
        return self.strike(point, self.control.operator, slot, self.control.epoch)


class LocalCluster:
    """Runs the slots of some operators; see :class:`tether.engine.ports.Cluster`.

    Args:
        operators: By name, upstream ones first.
        host: Keeps their resident states.
        strike: Decides which faults strike; none by default.
    """

    def __init__(
        self,
        operators: Mapping[str, QueryOperator],
        host: HeapHost,
        strike: Callable[[Point, str, Slot, Epoch], bool] | None = None,
    ) -> None:
        self._operators, self._host, self._strike = operators, host, strike
        self._turn = self._attempts = 0
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
            out: list[list[pa.RecordBatch]] = []
            for slot, rows in zip(
                each_slot(operator.slots), given.by_slot(operator, self.emitted), strict=True
            ):
                work, emitted = self._try(program, slot, rows)
                out.append(emitted)
                if work.status is not None:
                    statuses[SlotId(name, slot)] = work.status
            self.emitted[name] = out
        if self._strike is not None:
            self._strike("after-job", "", AT_DRIVER, epoch)
        return statuses

    def _try(
        self,
        program: Program,
        slot: Slot,
        rows: Sequence[pa.RecordBatch],
    ) -> tuple[SlotBesideEpochs, list[pa.RecordBatch]]:
        left = ATTEMPTS
        while True:
            left -= 1
            work = self._work(program, slot)
            try:
                if slot in program.control.kept:
                    work.stay(rows)
                    return work, []
                if slot in program.control.skipped:
                    work.skip(rows)
                    return work, []
                return work, list(work.run(rows))
            except TaskKilled:
                if not left:
                    raise

    def _work(self, program: Program, slot: Slot) -> SlotBesideEpochs:
        self._attempts += 1
        return SlotBesideEpochs(
            program, slot, f"{program.control.run}-{self._attempts}", self._host
        )

    def _program(
        self, orders: Orders, operator: str, epoch: Epoch, purpose: Purpose = "epoch"
    ) -> Program:
        program = orders.program(operator, epoch, self._turn, purpose)
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
            for slot in each_slot(operator.slots):
                work = self._work(program, slot)
                if purpose == "flush":
                    work.flush()
                else:
                    work.probe()
                if work.status is not None:
                    found[SlotId(name, slot)] = work.status
        return found

    def clean(self, orders: Orders, epoch: Epoch) -> None:
        """Remove all resident state."""
        del orders, epoch
        for name, operator in self._operators.items():
            for slot in each_slot(operator.slots):
                self._host.lose(name, slot)

    def forget_reports(self) -> None:
        """None are kept."""

    def place(self, *, stay: bool = False) -> None:
        """There is one place."""
        del stay

    def lopsided(self, places: Iterable[list[str]]) -> bool:
        """Never: there is one place."""
        del places
        return False

    def shaken(self) -> bool:
        """Never: what dies here dies with all of it."""
        return False

    def seats(self) -> dict[str, Seats]:
        """None: nothing has copies in one place."""
        return {}

    def release(self) -> None:
        """Nothing is held."""

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """Whoever gives the rows knows their slots, and gives none for keys alone."""
        del keys
        raise ChangedProgramError(
            f"The state of {operator!r} cannot be split into {slots} slots here.",
            why="A run in one process is given its rows by slot, and cannot tell the slot of a key.",
            do="Start it with the old number of slots.",
        )
