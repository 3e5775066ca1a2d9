"""Events that belong to one failure, put together: which slots, how long each phase took, its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.ids import NEVER, Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.observe.story import Event

KEPT = 500
"""Number of failures that are remembered, the newest ones."""
OF_FAILURES = frozenset({"recovery", "rollback", "rewound", "feedback-lost", "unflushed", "damage"})
"""Events that tell of one."""
PHASES = ("find", "read", "apply", "replay", "finish")
"""Phases of a slot's recovery, in order; phases that other reports name follow them."""


class StruckSlot(msgspec.Struct, frozen=True, kw_only=True):
    """What a failure did to one slot."""

    operator: str
    slot: Slot
    what: str
    why: str
    executor: str = ""
    lost: float | None = 0.0
    """The most that was lost, as measured: the divergence that the slot had last reported."""
    allowed: float | None = 0.0
    """θ: the most that could have been lost."""
    seconds: dict[str, float] = {}
    """Seconds of each phase."""
    bytes: int = 0
    entries: int = 0
    backup_epoch: Epoch = NEVER


class Failure(msgspec.Struct, kw_only=True):
    """All that one epoch had to make good."""

    number: int
    """Counts up from 1, oldest first."""
    at: float
    epoch: Epoch
    pause: float | None = None
    """Seconds from the end of the epoch before to the end of this one; None: not known."""
    slots: list[StruckSlot] = []
    notes: list[str] = []
    """What is told of the query as a whole."""
    lost: float | None = 0.0
    """Sum over the slots; None: nobody knows how much."""
    allowed: float | None = 0.0
    seconds: dict[str, float] = {}
    """Seconds of each phase, for the slowest slot: slots recover in parallel."""


class Failures:
    """Failures in order, from the events of a feed; an executor's death is one, whatever it hit."""

    def __init__(self) -> None:
        self._failures: list[Failure] = []
        self._run = 0
        self._count = 0

    def add(self, event: Event, run: int = 0) -> Failure | None:
        """Take in an event; give the failure that it tells of, if it does.

        Args:
            event: The event.
            run: Which run of the query: an epoch of another run is another failure.
        """
        if event.what not in OF_FAILURES:
            return None
        last = self._failures[-1] if self._failures else None
        if last is None or last.epoch != event.epoch or self._run != run:
            self._count += 1
            last = Failure(number=self._count, at=event.at, epoch=event.epoch)
            self._failures.append(last)
            del self._failures[:-KEPT]
        self._run = run
        if event.slot < 0:
            last.notes = [*last.notes, f"{event.what}: {event.cause}"]
            return last
        struck = _struck(event)
        last.slots = [*last.slots, struck]
        last.lost = _sum(last.lost, struck.lost)
        last.allowed = _sum(last.allowed, struck.allowed)
        for phase in _ordered({**last.seconds, **struck.seconds}):
            slowest = max(last.seconds.get(phase, 0.0), struck.seconds.get(phase, 0.0))
            last.seconds = {**last.seconds, phase: slowest}
        return last

    def paused(self, epoch: Epoch, seconds: float) -> None:
        """An epoch has ended so long after the one before."""
        if self._failures and self._failures[-1].epoch == epoch:
            self._failures[-1].pause = seconds

    def all(self, after: int = 0) -> list[Failure]:
        """Failures with numbers above ``after``, oldest first."""
        return [failure for failure in self._failures if failure.number > after]

    def __len__(self) -> int:
        return self._count


def _struck(event: Event) -> StruckSlot:
    told: dict[str, Any] = event.detail
    recovered = event.what == "recovery"
    lost = told.get("bound", 0.0) if recovered and not told.get("exact") else 0.0
    return StruckSlot(
        operator=event.operator,
        slot=event.slot,
        what=event.what,
        why=event.cause,
        executor=str(told.get("executor", "")),
        lost=_amount(lost),
        allowed=_amount(told.get("allowed", 0.0)) if recovered else 0.0,
        seconds=dict(told.get("seconds", {})),
        bytes=int(told.get("bytes", 0)),
        entries=int(told.get("entries", 0)),
        backup_epoch=Epoch(told.get("backup_epoch", NEVER)),
    )


def _amount(told: float | None) -> float | None:
    return None if told is None or told == float("inf") else float(told)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _ordered(phases: Iterable[str]) -> list[str]:
    names = list(phases)
    return [p for p in PHASES if p in names] + [p for p in names if p not in PHASES]
