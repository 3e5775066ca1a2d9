"""What the books said at the end of recent epochs, for the progress reports of those epochs."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch
from tether.engine.query.ledger import progress_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.engine.query.ledger import Glimpse, Spread


class RecentGlimpses:
    """Glimpses by epoch, for each of Spark's queries that this one has run as.

    They are kept as they are, for most are never asked for; sums are made when they are.

    Args:
        spread: How errors spread between the operators.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self.keep = 100
        """Of each run, so many epochs: as many as Spark keeps reports of."""
        self._lock = threading.Lock()
        self._runs: list[deque[tuple[int, Sequence[Glimpse], int | None]]] = [deque()]

    def begin_anew(self) -> None:
        """Spark's query has ended, and another one takes its place."""
        with self._lock:
            self._runs.append(deque())

    def note(self, epoch: Epoch, glimpses: Sequence[Glimpse], since: int | None = None) -> None:
        """An epoch has been run; rows are tentative since another, if they are."""
        with self._lock:
            run = self._runs[-1]
            run.append((epoch, glimpses, since))
            while len(run) > self.keep:
                run.popleft()

    def progress(self, run: int, epoch: Epoch) -> dict[str, Any] | None:
        """What to add to Spark's report of an epoch; None where it is forgotten.

        Args:
            run: Which of Spark's queries, 0 is the first.
            epoch: Of the report. One that was not run had no rows: the last before it stands.
        """
        with self._lock:
            known = [(glimpses, since) for at, glimpses, since in self._runs[run] if at <= epoch]
        if not known:
            return None
        glimpses, since = known[-1]
        return progress_of(glimpses, self._spread, since)
