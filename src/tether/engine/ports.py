"""What the engine needs from its host. Spark, local pipelines and the simulator provide it.

- :class:`Cluster` runs the tasks of slots and returns their reports.
- :class:`Reports` is told what happens, for people.
- :class:`Store` keeps frames and commit records (the protocol of :mod:`tether.backup`).
- :class:`Stream` is the input, which can be read again from an earlier epoch.
- :class:`Clock` shows the time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tether.backup.protocol import BackupStore as Store
from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tether.core.graph import SlotId
    from tether.engine.messages import Purpose, SlotStatus
    from tether.engine.slot.program import Program
    from tether.observe.story import What
    from tether.protocols.copies import Seats

__all__ = [
    "BrokenOffError",
    "Clock",
    "Cluster",
    "Orders",
    "Reports",
    "Store",
    "Stream",
    "SystemClock",
]

Rows = TypeVar("Rows", contravariant=True)  # noqa: PLC0105 - what it holds, not how
"""The rows of an epoch, in the host's own form."""

Statuses = dict["SlotId", "SlotStatus"]
"""What slots report, by slot."""


class Orders(Protocol):
    """What the engine tells slots to do; the cluster asks for it when it starts a task."""

    def program(
        self, operator: str, epoch: Epoch, turn: int, purpose: Purpose = "epoch", table: str = ""
    ) -> Program:
        """What the slots of an operator are told.

        Args:
            operator: Its name.
            epoch: Number of the epoch to run, or the last committed one for other purposes.
            turn: How many times this driver has started an epoch.
            purpose: What the task is for.
            table: The table to read, where that is the purpose.
        """
        ...


class BrokenOffError(Exception):
    """An epoch was broken off because executors died: slots may have lost their state."""


class Cluster(Protocol[Rows]):
    """Runs slots.

    In an epoch every slot of every operator runs once, on the state of the previous epoch.
    """

    def run(
        self, orders: Orders, epoch: Epoch, given: Rows, only: Collection[str] | None = None
    ) -> Statuses:
        """Run an epoch in every slot, and give the output to the sinks; return the reports of all slots.

        Args:
            orders: What slots are told.
            epoch: Number of the epoch.
            given: The epoch's rows.
            only: Operators to run, without any sink; all by default.

        Raises:
            BrokenOffError: Executors died in the epoch, and it should be run again.
        """
        ...

    def shaken(self) -> bool:
        """Whether executors have died since this was last asked."""
        ...

    def ask(self, orders: Orders, purpose: Purpose, epoch: Epoch) -> Statuses:
        """Run a task without rows in every slot; return the reports, where slots made one."""
        ...

    def clean(self, orders: Orders, epoch: Epoch) -> None:
        """Remove the resident state of all slots, as far as they can be reached."""
        ...

    def forget_reports(self) -> None:
        """Drop reports so far: their epochs are run again."""
        ...

    def place(self, *, stay: bool = False) -> None:
        """Choose executors for slots that are restored next; with ``stay`` they are the same as now."""
        ...

    def lopsided(self, places: Iterable[list[str]]) -> bool:
        """Whether slots should move, given where those of each operator ran last."""
        ...

    def release(self) -> None:
        """Forget where slots were placed."""
        ...

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """The slot of each key, if the operator had this number of slots."""
        ...

    def seats(self) -> Mapping[str, Seats]:
        """The seats of each operator that has copies, as of the last placement."""
        ...

    def reseat(self, operator: str, seats: Seats) -> None:
        """Let rows of an operator go to other seats from now on: a copy has moved."""
        ...

    def executors(self) -> int:
        """Number of executors that slots can be placed on."""
        ...


class Reports(Protocol):
    """Gets told what happens to a query, and why."""

    def add(self, what: What, cause: str, epoch: Epoch, **detail: object) -> None:
        """Note something that concerns the query as a whole."""
        ...

    def add_epoch(self, statuses: Iterable[SlotStatus]) -> None:
        """Note what the slots report of an epoch."""
        ...

    def add_unflushed(self, slots: Iterable[SlotId], epoch: Epoch) -> None:
        """Note slots whose state was not there when the query stopped."""
        ...


class Stream(Protocol):
    """The parts of a query's input and output that can go back to an earlier epoch."""

    def check(self, read_from: Epoch) -> None:
        """Raise an error if the input cannot be read again from an epoch on."""
        ...

    def rows_of(self, epoch: Epoch) -> Any:
        """An identifier of an epoch's rows: equal for two runs of it only if the rows are the same."""
        ...

    def announce(self, read_from: Epoch) -> None:
        """Record durably that the input is about to go back to an epoch."""
        ...

    def announced(self) -> Epoch | None:
        """The epoch of an announcement that has not been carried out yet, if any."""
        ...

    def take_back(self, epoch: Epoch) -> None:
        """Tell the sinks that the output of this epoch and all after it will be given again."""
        ...

    def go_back(self, read_from: Epoch) -> None:
        """Let the next epoch be ``read_from``, with the rows that it had."""
        ...

    def done(self) -> None:
        """Remove the announcement."""
        ...


class Clock(Protocol):
    """Shows the time."""

    def seconds(self) -> float:
        """Seconds by a clock that never goes back."""
        ...

    def today(self) -> float:
        """Unix seconds."""
        ...


class SystemClock:
    """The machine's.

    Example:
        >>> clock = SystemClock()
        >>> clock.seconds() <= clock.seconds()
        True
    """

    def seconds(self) -> float:
        """Seconds by a clock that never goes back."""
        return time.monotonic()

    def today(self) -> float:
        """Unix seconds."""
        return time.time()


def by_operator(statuses: Mapping[SlotId, SlotStatus], operator: str) -> dict[Slot, SlotStatus]:
    """The reports of one operator's slots, by number."""
    return {slot: status for (name, slot), status in statuses.items() if name == operator}
