"""The feed of one query: what is noted as it runs, and how pages, metrics and commands read it.

Memory is bounded whatever the length of the run: figures of old epochs are joined, events and failures
are kept up to a number, divergences in rings.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from tether.core.ids import NEVER, Slot
from tether.observe.facts import (
    Digest,
    Ended,
    EpochFigures,
    Fact,
    QueryFacts,
    SlotsNow,
    Standing,
    Told,
)
from tether.observe.failures import Failure, Failures
from tether.observe.history import EpochHistory, joined
from tether.observe.slot_history import SlotCourse, SlotHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tether.observe.facts import Ending
    from tether.observe.story import Event

EVENTS_KEPT = 5_000
MANY = 64
"""Largest number of backups and placements of an epoch that are events; the others are only counted."""


SUMS = ("epochs", "rows_in", "rows_out", "changed", "losses")


class Keeps(Protocol):
    """Where facts are kept beside a feed."""

    def write(self, fact: Fact) -> None:
        """Keep a fact; returns at once."""
        ...


class Feed:
    """What is known of a query, over all of its runs that were seen; safe to use from any thread.

    Args:
        keeps: Where facts are kept besides, if anywhere.

    Example:
        >>> feed = Feed()
        >>> feed.take(EpochFigures(at=1.0, epoch=0, rows_in=10))
        >>> feed.history.total.rows_in, feed.version
        (10, 1)
    """

    def __init__(self, keeps: Keeps | None = None) -> None:
        self._lock = threading.RLock()
        self._keeps = keeps
        self.query: QueryFacts | None = None
        self.history = EpochHistory()
        self.slots = SlotHistory()
        self.failures = Failures()
        self.standing = Standing(at=0.0)
        self.ended: Ended | None = None
        self.runs: list[tuple[float, str]] = []
        """When each run began, and its id."""
        self.version = 0
        """Grows with everything that is taken in."""
        self.heard_at = 0.0
        """Unix seconds of the newest fact."""
        self._events: deque[tuple[int, Event]] = deque(maxlen=EVENTS_KEPT)
        self._count = 0
        self._of_run = EpochFigures(at=0.0, epoch=NEVER, epochs=0)
        """Sums of the newest run."""
        self._of_epoch = (-1, 0)
        self._listeners: list[Callable[[Fact], None]] = []
        self._actions: dict[str, Callable[[], str]] = {}

    # ---- taking in -----------------------------------------------------------------------------

    def take(self, fact: Fact) -> None:
        """Take in the next fact, and keep it where facts are kept."""
        with self._lock:
            self._take(fact)
            self.version += 1
        if self._keeps is not None:
            self._keeps.write(fact)
        for listener in self._listeners:
            listener(fact)

    def recall(self, fact: Fact) -> None:
        """Take in a fact that an earlier run has told, and kept."""
        with self._lock:
            self._take(fact)
            self.version += 1

    def event(self, event: Event) -> None:
        """Take in an event; if an epoch has very many of one kind, the rest is only counted."""
        if event.what in ("backup", "placed"):
            epoch, before = self._of_epoch
            self._of_epoch = (event.epoch, before + 1 if epoch == event.epoch else 1)
            if self._of_epoch[1] > MANY:
                return
        self.take(Told(event=event))

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Call ``listener`` with every fact from now on; it must be quick."""
        self._listeners.append(listener)

    def close(self, how: Ending = "stopped", why: str = "") -> None:
        """The run is over."""
        if self.ended is None:
            self.take(Ended(at=time.time(), how=how, why=why))
        self._actions = {}

    @property
    def actions(self) -> Mapping[str, Callable[[], str]]:
        """What can be asked of the running query by name; each says what it has done."""
        return self._actions

    def offer(self, actions: Mapping[str, Callable[[], str]]) -> None:
        """Let the running query be asked for these actions, in place of earlier ones."""
        self._actions = dict(actions)

    def _take(self, fact: Fact) -> None:
        if isinstance(fact, EpochFigures):
            last = self.history.newest
            self.history.add(fact)
            self._of_run = joined(self._of_run, fact)
            if last is not None:
                self.failures.paused(fact.epoch, fact.at - last.at)
            self.heard_at = fact.at
        elif isinstance(fact, SlotsNow):
            self.slots.add(fact)
        elif isinstance(fact, Told):
            self._count += 1
            self._events.append((self._count, fact.event))
            self.failures.add(fact.event, len(self.runs))
            self.heard_at = fact.event.at
        elif isinstance(fact, QueryFacts):
            if not self.runs or self.runs[-1][1] != fact.run:
                self.runs.append((fact.at, fact.run))
                del self.runs[:-1000]
                self._of_run = EpochFigures(at=0.0, epoch=NEVER, epochs=0)
            self.query, self.ended = fact, None
            self.heard_at = max(self.heard_at, fact.at)
        elif isinstance(fact, Standing):
            self.standing = fact
        elif isinstance(fact, Ended):
            self.ended = fact
            self.heard_at = fact.at
        elif isinstance(fact, Digest):
            self._begin_after(fact)

    def _begin_after(self, digest: Digest) -> None:
        """If earlier files are gone, add their content to the sums."""
        known = self._of_run
        if known.epochs >= digest.epochs:
            return
        more = {name: getattr(digest, name) - getattr(known, name) for name in SUMS}
        self.history.add_to_total(more, digest.backups, digest.backup_bytes)
        self._of_run = msgspec.structs.replace(
            known, **{name: getattr(digest, name) for name in SUMS}
        )

    # ---- reading -------------------------------------------------------------------------------

    def events(self, after: int = 0) -> list[tuple[int, Event]]:
        """Events with their numbers in the feed, those above ``after``, oldest first."""
        with self._lock:
            found = []
            for number, event in reversed(self._events):
                if number <= after:
                    break
                found.append((number, event))
            return found[::-1]

    def epochs(self, after: float = 0.0) -> list[EpochFigures]:
        """Figures that ended later than ``after`` (Unix seconds), oldest first."""
        with self._lock:
            return self.history.entries(after)

    def failures_after(self, number: int = 0) -> list[Failure]:
        """Failures with numbers above ``number``, oldest first."""
        with self._lock:
            return [msgspec.structs.replace(failure) for failure in self.failures.all(number)]

    def course(self, operator: str, slot: Slot) -> SlotCourse | None:
        """How the divergence of one slot went; None where there is no such slot."""
        with self._lock:
            names = [one.name for one in self.query.operators] if self.query else []
            return self.slots.course(names.index(operator), slot) if operator in names else None
