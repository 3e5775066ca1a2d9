"""The backup store on virtual time: logs of records, and how long reading and writing take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.framecodec import decode_frame
from tether.core.errors import BackupUnreadableError
from tether.simulate.items import ITEM_BYTES

if TYPE_CHECKING:
    from tether.backup.frames import Frame
    from tether.core.thresholds import Thresholds
    from tether.policies.window_effects import WindowedState
    from tether.protocols.items import BackUpItems, BackUpPunctuation, DropItems, ReceiverState
    from tether.simulate.faults import Outcome
    from tether.simulate.items import Run

RECORD_BYTES = 64
"""Bytes of a record's head, and of one that holds nothing else."""


class Price(NamedTuple):
    """The largest cost of a loss as reported: the thresholds that were durable when it happened."""

    life: int
    """Number of the slot's life that was lost; it is lost once, however often it is recovered."""
    limits: Thresholds


@dataclass(frozen=True, slots=True)
class Record:
    """One durable entry of a slot's log; each kind of write fills in what it saves."""

    frame: bytes = b""
    """A frame of state, as ``tether.backup`` writes it; empty if there is none."""
    full: bool = False
    """Whether the frame replaces all before it."""
    number: int = 0
    """Number of the newest item in the state, of a record with a frame."""
    receiver: ReceiverState | None = None
    policy_state: WindowedState | None = None
    price: Price | None = None
    """Of a loss that was found, before the slot goes on."""
    runs: tuple[Run, ...] = ()
    """Backed-up items."""
    said: tuple[BackUpItems | BackUpPunctuation | DropItems, ...] = ()
    """What ``core.items.replay`` wants to know."""
    torn: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes in the store."""
        items = sum(run.items.shape[1] for run in self.runs)
        return RECORD_BYTES + len(self.frame) + ITEM_BYTES * int(items)


@dataclass
class SlotLog:
    """All that is durable of one slot, in the order of writing."""

    records: list[Record] = field(default_factory=list)
    account: dict[int, Price] = field(default_factory=dict)
    """The price of every loss, by the life that was lost; fixed by its first record."""
    frame_bytes: int = 0
    """Bytes of frames since the last full one, that one included."""
    full_bytes: int = 0

    def append(self, record: Record) -> None:
        """Add a durable record; after a full frame most earlier records are not needed."""
        if record.price is not None:
            self.account.setdefault(record.price.life, record.price)
        if record.full:
            kept = [r for r in self.records if r.runs and r.runs[-1].last > record.number]
            self.records = [replace(r, frame=b"", policy_state=None) for r in kept]
            self.frame_bytes, self.full_bytes = 0, len(record.frame)
        self.frame_bytes += len(record.frame)
        self.records.append(record)

    def leave(self, record: Record, outcome: Outcome) -> None:
        """Keep what a dying writer left of a record."""
        if outcome == "whole":
            self.append(record)
        elif outcome == "torn":
            self.records.append(replace(record, frame=record.frame[:-9], torn=True))

    def cut_torn(self) -> int:
        """Remove records that cannot be read, as a recovery does; give their number."""
        readable = [record for record in self.records if _readable(record)]
        gone = len(self.records) - len(readable)
        self.records = readable
        return gone

    def frames(self) -> list[Frame]:
        """The frames to restore, oldest first."""
        return [decode_frame(record.frame) for record in self.records if record.frame]

    @property
    def nbytes(self) -> int:
        """Bytes that a recovery reads."""
        return sum(record.nbytes for record in self.records)


def _readable(record: Record) -> bool:
    if not record.frame:
        return not record.torn
    try:
        decode_frame(record.frame)
    except BackupUnreadableError:
        return False
    return True


class ItemStore:
    """Servers that take one transfer at a time, each after a fixed latency.

    Args:
        slots: Number of slots; each has a log of its own.
        latency: Seconds that any operation takes besides its transfer.
        bandwidth: Bytes a second of one server.
        servers: Number of servers; slots are spread over them.
    """

    def __init__(self, slots: int, *, latency: float, bandwidth: float, servers: int) -> None:
        self.logs = [SlotLog() for _ in range(slots)]
        self._latency, self._bandwidth = latency, bandwidth
        self._free = [0.0] * servers
        self._out_until = 0.0
        self.written = {"state": 0, "items": 0, "control": 0}
        """Bytes written, by what they hold; writes that failed are counted too."""
        self.writes = {"state": 0, "items": 0, "control": 0}

    def outage(self, until: float) -> None:
        """No transfer starts before that time; those under way are finished."""
        self._out_until = max(self._out_until, until)

    def transfer(self, slot: int, nbytes: int, now: float) -> float:
        """Start a transfer; returns the time of its end."""
        server = slot % len(self._free)
        start = max(now, self._free[server], self._out_until)
        self._free[server] = start + nbytes / self._bandwidth
        return self._free[server] + self._latency

    def write(self, slot: int, record: Record, now: float) -> float:
        """Start a write; returns the time at which it is durable."""
        what = "state" if record.frame else "items" if record.runs else "control"
        self.written[what] += record.nbytes
        self.writes[what] += 1
        return self.transfer(slot, record.nbytes, now)
