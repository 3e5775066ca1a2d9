"""The events that a policy gets, one for each step of a slot's epoch."""

from __future__ import annotations

import msgspec

from tether.core.ids import Epoch, SnapshotNumber


class EpochApplied(msgspec.Struct, frozen=True, kw_only=True, tag="epoch-applied"):
    """All rows of an epoch are in the resident state; the epoch may be committed next."""

    epoch: Epoch
    divergence: float
    """Distance between resident state and committed backups, in units of the divergence."""
    items: int
    """Rows that the slot took in during this epoch."""
    newest_event_time: float | None = None
    """Newest event time, in seconds, that the query has seen so far. It never decreases."""
    watermark: float | None = None
    """Event time, in seconds, up to which windows are complete."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True, tag="recovered"):
    """The resident state was lost and has been replaced by the backup's."""

    epoch: Epoch
    """The epoch that the slot is about to run."""
    newest_event_time: float | None = None
    """Newest event time, in seconds, that the query had seen before the loss, if known."""


class WindowEnd(msgspec.Struct, frozen=True, kw_only=True, tag="window-end"):
    """A hopping window is complete: its answer has been emitted and its state cleared."""

    epoch: Epoch
    end: float
    """First position after the window, in its unit (seconds, items or epochs)."""


class Flushed(msgspec.Struct, frozen=True, kw_only=True, tag="flushed"):
    """The query is being stopped: everything that is not durable should become so."""

    epoch: Epoch
    divergence: float


class RowsReady(msgspec.Struct, frozen=True, kw_only=True, tag="rows-ready"):
    """A slot is about to get its rows of an epoch, which are not processed yet."""

    epoch: Epoch
    items: int


class BarrierAligned(msgspec.Struct, frozen=True, kw_only=True, tag="barrier-aligned"):
    """All barriers of a snapshot have arrived: the state contains exactly what came before them."""

    epoch: Epoch
    number: SnapshotNumber
    """The snapshot's."""
    complete: SnapshotNumber | None
    """Newest complete snapshot, as the coordinator knows it."""


Event = EpochApplied | Recovered | WindowEnd | Flushed | RowsReady | BarrierAligned
