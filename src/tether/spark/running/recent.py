"""The ledgers' content at the end of recent epochs, for the progress reports of those epochs."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tether.core.ids import Epoch
from tether.engine.query.ledger import progress_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.engine.query.ledger import Glimpse, Spread


class _Noted(NamedTuple):
    epoch: int
    glimpses: Sequence[Glimpse]
    since: int | None
    rows_read: int


class RecentGlimpses:
    """Glimpses by epoch, for each of Spark's queries that this one has run as.

    They are kept unchanged, and summed up only when a report is asked for.

    Args:
        spread: How errors spread between the operators.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread, self._keep = spread, 100
        self._lock = threading.Lock()
        self._runs: list[deque[_Noted]] = [deque()]

    def keep(self, epochs: int) -> None:
        """Keep the newest epochs of each run, as many as Spark keeps reports of."""
        self._keep = epochs

    def spread_by(self, spread: Spread) -> None:
        """Errors spread differently from now on, because the number of slots has changed."""
        self._spread = spread

    def begin_run(self) -> None:
        """Spark's query has ended, and another one takes its place."""
        with self._lock:
            self._runs.append(deque())

    def note(
        self,
        epoch: Epoch,
        glimpses: Sequence[Glimpse],
        since: int | None = None,
        *,
        rows_read: int = 0,
    ) -> None:
        """An epoch has been run.

        Args:
            epoch: Its number.
            glimpses: The ledgers' content now.
            since: Rows are tentative since this epoch, if they are.
            rows_read: Rows that we have read, and Spark has not seen.
        """
        with self._lock:
            run = self._runs[-1]
            run.append(_Noted(epoch, glimpses, since, rows_read))
            while len(run) > self._keep:
                run.popleft()

    def progress(self, run: int, epoch: Epoch) -> dict[str, Any] | None:
        """What to add to Spark's report of an epoch; None where it is forgotten.

        Args:
            run: Which of Spark's queries, 0 is the first.
            epoch: Of the report. One that was not run had no rows: the last before it stands.
        """
        with self._lock:
            known = [one for one in self._runs[run] if one.epoch <= epoch]
        if not known:
            return None
        return progress_of(known[-1].glimpses, self._spread, known[-1].since)

    def with_rows(self, run: int, report: dict[str, Any]) -> dict[str, Any]:
        """Spark's report of an epoch, with the rows that we have read in Spark's place.

        Args:
            run: Which of Spark's queries, 0 is the first.
            report: Spark's.
        """
        with self._lock:
            noted = [one for one in self._runs[run] if one.epoch == report["batchId"]]
        # A report between epochs repeats the number of the next one, and has no such time.
        if not noted or not noted[-1].rows_read or "addBatch" not in report["durationMs"]:
            return report
        return counted(report, noted[-1].rows_read)


def counted(report: dict[str, Any], rows: int) -> dict[str, Any]:
    """A report of Spark's, with a number of rows that Spark itself has not counted.

    Example:
        >>> report = {"numInputRows": 0, "durationMs": {"triggerExecution": 500}, "sources": [{}]}
        >>> counted(report, 10)["processedRowsPerSecond"]
        20.0
    """
    seconds = report["durationMs"].get("triggerExecution", 0) / 1000
    told: dict[str, Any] = {"numInputRows": rows}
    if seconds:
        told["processedRowsPerSecond"] = rows / seconds
    sources = [{**source, **told} for source in report["sources"]]
    return {**report, **told, "sources": sources}
