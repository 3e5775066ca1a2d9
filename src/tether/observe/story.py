"""What happened to a query and why: every backup, loss, recovery, rollback, in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus

EVENTS_KEPT = 10_000
"""Events remembered by a running query; the backup store keeps its own account for longer."""


What = Literal[
    "started",
    "placed",
    "backup",
    "snapshot",
    "given-up",
    "recovery",
    "rollback",
    "rewound",
    "tentative",
    "ahead-lost",
    "corrected",
    "interrupted",
    "clock-ahead",
    "healing",
    "twin",
    "twin-lost",
    "no-twin",
    "taken-over",
    "replanned",
    "resent",
    "respread",
    "rescaled",
    "copied",
    "copies-lost",
    "promoted",
    "replanned-copies",
    "copy-moved",
    "feedback-lost",
    "items-lost",
    "unflushed",
    "damage",
    "stopped",
]
"""What can happen to a query."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    at: float
    """Unix seconds, at the driver."""
    epoch: Epoch
    what: What
    cause: str
    operator: str = ""
    slot: Slot = Slot(-1)
    detail: dict[str, Any] = {}
    number: int = 0
    """Counts up from 1 within a run of the query."""


class Story:
    """A query's account of itself; safe to read from any thread.

    Args:
        tell: Called with every event that is added, in order; it must be quick.
    """

    def __init__(self, tell: Callable[[Event], None] | None = None) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], str] = {}
        self._tell, self._number = tell, 0

    def _append(self, event: Event) -> None:
        self._number += 1
        event = msgspec.structs.replace(event, number=self._number)
        self._events.append(event)
        if self._tell is not None:
            self._tell(event)

    def add(self, what: What, cause: str, epoch: Epoch, **detail: object) -> None:
        """Note something that concerns the query as a whole."""
        event = Event(at=time.time(), epoch=epoch, what=what, cause=cause, detail=detail)
        with self._lock:
            self._append(event)

    def add_epoch(self, statuses: Iterable[SlotStatus]) -> None:
        """Note what the slots report of an epoch, beyond plain work."""
        with self._lock:
            for status in statuses:
                key = (status.operator, status.slot)
                moved_from = self._places.get(key)
                self._places[key] = status.executor
                for event in _events_of(status, moved_from, time.time()):
                    self._append(event)

    def add_unflushed(self, slots: Iterable[SlotId], epoch: Epoch) -> None:
        """Note slots whose state was gone when the query stopped: the next start counts the loss."""
        with self._lock:
            for operator, slot in slots:
                self._append(
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


class QuietStory(Story):
    """A twin's account of itself. Nothing of it is noted until the twin has taken over.

    Args:
        story: The query's.
    """

    def __init__(self, story: Story) -> None:
        super().__init__()
        self._story = story
        self._quiet = True

    def speak(self) -> None:
        """The twin has taken over: note everything from now on."""
        self._quiet = False

    def add(self, what: What, cause: str, epoch: Epoch, **detail: object) -> None:
        """Note something that concerns the query as a whole."""
        if not self._quiet:
            self._story.add(what, cause, epoch, **detail)

    def add_epoch(self, statuses: Iterable[SlotStatus]) -> None:
        """Note what the slots report of an epoch, beyond plain work."""
        if not self._quiet:
            self._story.add_epoch(statuses)

    def add_unflushed(self, slots: Iterable[SlotId], epoch: Epoch) -> None:
        """Note slots whose state was gone when the query stopped."""
        if not self._quiet:
            self._story.add_unflushed(slots, epoch)


def _events_of(status: SlotStatus, was_on: str | None, at: float) -> list[Event]:
    events: list[Event] = []

    def add(what: What, cause: str, **detail: object) -> None:
        events.append(
            Event(
                at=at,
                epoch=status.epoch,
                what=what,
                cause=cause,
                operator=status.operator,
                slot=status.slot,
                detail=detail,
            )
        )

    if status.executor != was_on:
        cause = "first epoch" if was_on is None else "moved to another executor"
        add("placed", cause, executor=status.executor)
    if status.recovery is not None:
        told = msgspec.structs.asdict(status.recovery)
        del told["loss"]  # the other fields say it, for people
        facts: dict[str, object] = {
            "failures": status.failures,
            "theta": status.theta,
            "executor": status.executor,
        }
        if status.recovery.loss is not None:
            facts["allowed"] = status.recovery.loss.theta  # what it could have cost at most
        add("recovery", status.recovery.reason, **told, **facts)
    if status.rolled_back:
        add("rollback", "the task was run again")
    if (frame := status.frame) is not None:
        told = msgspec.structs.asdict(frame)
        shown = {name: value for name, value in told.items() if name not in ("ref", "cause")}
        add("backup", frame.cause, **shown, bytes=frame.ref.length, theta=status.theta)
    return events
