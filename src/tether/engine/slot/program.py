"""What a slot's task needs in addition to its rows, packed once per epoch for all slots."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tether.chaos.faults import SLOT_STORE_POINTS, reach
from tether.chaos.store_faults import with_trouble
from tether.core.errors import BackupError
from tether.core.ids import Slot
from tether.policies.terms import terms_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tether.backup.history import CommitHistory
    from tether.backup.opening import StoreAddress
    from tether.backup.protocol import BackupStore
    from tether.chaos.faults import Fault, Point
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.engine.messages import SlotControl
    from tether.policies.policy import Policy


@dataclass(frozen=True, eq=False)
class HeldStore:
    """A store that is already open in the slots' own process."""

    store: BackupStore


@dataclass(frozen=True, kw_only=True)
class Program:
    """All that the slots of one operator share in one epoch. Travels in the task's closure."""

    control: SlotControl
    operator: bytes
    """The user's operator, pickled once for the whole query."""
    policy: Policy
    placement: Placement
    store: StoreAddress | HeldStore | None
    output_schema: pa.Schema
    faults: tuple[Fault, ...] = field(default=())
    feedback_schema: pa.Schema | None = None
    window: Window | None = None
    event_time: str | None = None
    """Column with the rows' event time, where the operator has one."""
    drops_event_time: bool = False
    """Whether that column was added for the clock only, and is removed before the operator gets the
    rows."""

    @cached_property
    def terms(self) -> str:
        """Name of the current terms: everything that the slots' thresholds depend on."""
        return terms_of(self.policy, self.placement)

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the operator gets it."""
        if self.event_time is None or not self.drops_event_time:
            return batch
        return batch.drop_columns([self.event_time])

    def reach(self, point: Point, slot: Slot) -> bool:
        """A slot has reached a point of the protocol: let a fault that is planned there strike.

        Returns:
            Whether the slot must drop its resident state.
        """
        control = self.control
        return reach(self.faults, point, slot, control.epoch, control.operator)

    def open_store(self) -> BackupStore:
        """The backup store, opened once per process.

        Raises:
            BackupError: The query has none.
        """
        if self.store is None:
            raise BackupError(
                "The policy asked for a backup, but the query has no backup store.",
                do="Pass backup=... to start().",
            )
        if isinstance(self.store, HeldStore):
            return self.store.store
        # Keyed by value: a new address object arrives with every epoch, and it cannot be hashed.
        key = pickle.dumps((self.store, self.faults))
        if key not in _opened:
            # Importing the operator's module may register the store's protocol with fsspec, and this
            # process may not have imported it yet.
            pickle.loads(self.operator)  # noqa: S301 - the query's own
            _opened[key] = with_trouble(
                self.store.open(), self.faults, self.store.url, points=SLOT_STORE_POINTS
            )
        return _opened[key]

    def history(self) -> CommitHistory:
        """The commit log, read now.

        Raises:
            BackupError: It is older than what the driver has committed. Spark tries again, and a store
                that was only late is up to date by then.
        """
        log = self.open_store().read_commits()
        known = self.control.log_end
        if known is not None and not log.reaches(known):
            raise BackupError(
                "The backup store gave an old commit log.",
                why=f"{known.number} records were durable, and {log.end.number} are found. "
                + " ".join(log.damaged),
                do="Nothing if the next try succeeds. Else use a store whose reads see every write "
                "that was acknowledged; a mount that caches, say, does not.",
            )
        return log.history


_opened: dict[bytes, BackupStore] = {}
"""Stores that are open in this process, so that a slot's log file is continued and not started in every
epoch."""
