"""What happened to a query and why: every backup, loss, recovery, rollback, in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.spark.control import SlotStatus

EVENTS_KEPT = 10_000
"""Events remembered by a running query; the backup store keeps its own account for longer."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    at: float
    """Unix seconds, at the driver."""
    epoch: int
    what: Literal[
        "started",
        "placed",
        "backup",
        "snapshot",
        "given-up",
        "recovery",
        "rollback",
        "rewound",
        "replanned",
        "respread",
        "unflushed",
        "stopped",
    ]
    cause: str
    operator: str = ""
    slot: int = -1
    detail: dict[str, object] = {}


class Story:
    """A query's account of itself; safe to read from any thread."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], str] = {}

    def add(self, what: str, cause: str, epoch: int, **detail: object) -> None:
        """Note something that concerns the query as a whole."""
        event = Event(at=time.time(), epoch=epoch, what=what, cause=cause, detail=detail)  # type: ignore[arg-type]
        with self._lock:
            self._events.append(event)

    def add_epoch(self, statuses: Iterable[SlotStatus]) -> None:
        """Note what the slots report of an epoch, beyond plain work."""
        with self._lock:
            for status in statuses:
                key = (status.operator, status.slot)
                moved_from = self._places.get(key)
                self._places[key] = status.executor
                self._events.extend(_events_of(status, moved_from, time.time()))

    def add_unflushed(self, slots: Iterable[tuple[str, int]], epoch: int) -> None:
        """Note slots whose state was gone when the query stopped: the next start counts the loss."""
        with self._lock:
            for operator, slot in slots:
                self._events.append(
                    Event(
                        at=time.time(),
                        epoch=epoch,
                        what="unflushed",
                        cause="its state was gone when the query stopped",
                        operator=operator,
                        slot=slot,
                    )
                )

    def events(self) -> list[Event]:
        """Everything noted so far, oldest first."""
        with self._lock:
            return list(self._events)


def _events_of(status: SlotStatus, was_on: str | None, at: float) -> list[Event]:
    place = {"operator": status.operator, "slot": status.slot, "epoch": status.epoch, "at": at}
    events = []
    if status.executor != was_on:
        cause = "first epoch" if was_on is None else "moved to another executor"
        detail: dict[str, object] = {"executor": status.executor}
        events.append(Event(what="placed", cause=cause, detail=detail, **place))  # type: ignore[arg-type]
    if status.recovery is not None:
        detail = msgspec.structs.asdict(status.recovery) | {
            "failures": status.failures,
            "theta": status.theta,
            "executor": status.executor,
        }
        cause = status.recovery.reason
        events.append(Event(what="recovery", cause=cause, detail=detail, **place))  # type: ignore[arg-type]
    if status.rolled_back:
        cause = "the task was run again"
        events.append(Event(what="rollback", cause=cause, **place))  # type: ignore[arg-type]
    if status.frame is not None:
        frame = msgspec.structs.asdict(status.frame)
        detail = {name: value for name, value in frame.items() if name not in ("ref", "cause")}
        detail |= {"bytes": status.frame.ref.length, "theta": status.theta}
        events.append(Event(what="backup", cause=status.frame.cause, detail=detail, **place))  # type: ignore[arg-type]
    return events
