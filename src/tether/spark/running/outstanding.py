"""Tentative rows that were given and not corrected yet, and how long it will take until they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tether.spark.changes.outlet import Outlet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.protocols.take_over import Note, TakeOver
    from tether.spark.sinks import Sink


class Outstanding:
    """The tentative rows that a query still has to correct.

    Args:
        sinks: The query's.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._outlets = [sink for sink in sinks if isinstance(sink, Outlet)]
        self._since = self._twin_since = 0.0
        self._given: dict[int, tuple[int, float]] = {}
        """Rows and time of each epoch that is tentative so far."""

    def begin(self, usual_rows: int) -> None:
        """Note that something is missing from now on, or since an earlier driver.

        Args:
            usual_rows: Approximate number of rows of an epoch; 0 if not known.
        """
        for outlet in self._outlets:
            outlet.expect(usual_rows or None)
        self._since = time.time()
        for epoch in {epoch for outlet in self._outlets for epoch in outlet.outstanding()}:
            self.give(epoch)
        if self._given:
            self._since = min(at for _, at in self._given.values())

    def begin_twin(self) -> None:
        """A twin starts now."""
        self._twin_since = time.time()

    @property
    def seconds(self) -> float:
        """Seconds since something has been missing."""
        return time.time() - self._since

    def give(self, epoch: int) -> None:
        """Tentative rows of an epoch have been given."""
        given = [one.given(epoch) for one in self._outlets if one.takes_tentative]
        at = min((at for _, at in given), default=time.time())
        # A new object each time, because other threads read it.
        self._given = {**self._given, epoch: (sum(rows for rows, _ in given), at)}

    def settle(self, through: int) -> None:
        """Stable rows up to an epoch have been given, and that is durable."""
        for outlet in self._outlets:
            for epoch in outlet.outstanding():
                if epoch <= through:
                    outlet.settle(epoch)
        self._given = {epoch: one for epoch, one in self._given.items() if epoch > through}

    def told(self, state: TakeOver, note: Note, twin_epochs: int) -> dict[str, Any]:
        """What progress reports say.

        Args:
            state: The state of the take-over, while something is missing.
            note: Its note.
            twin_epochs: How many epochs the twin has run.
        """
        now = time.time()
        running = now - self._twin_since
        pace = twin_epochs / running if running > 0 else 0.0
        given = list(self._given.values())
        oldest = min((at for _, at in given), default=None)
        return {
            "since_epoch": note.since,
            "since": self._since,
            "snapshot": note.snapshot,
            "phase": state.phase,
            "twins": state.twins,
            "epochs_behind": max(0, state.behind),
            "seconds_left": max(0, state.behind) / pace if pace else None,
            "tentative_epochs": len(given),
            "tentative_rows": sum(rows for rows, _ in given),
            "oldest_tentative": oldest,
            "oldest_tentative_seconds": 0.0 if oldest is None else max(0.0, now - oldest),
        }
