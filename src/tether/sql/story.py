"""What happened to the state of a session's queries: every backup and restore, with its cause."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Literal

import msgspec
from pyspark.sql.streaming import StreamingQueryListener

EVENTS_KEPT = 10_000


class StateEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to the state of one operator in one batch, over all its partitions."""

    at: float
    """Unix seconds, at the driver."""
    query: str
    """Name of the query, or its id where it has none."""
    batch: int
    operator: str
    what: Literal["backup", "restore", "loss"]
    cause: str
    detail: dict[str, int] = {}


class Storyteller(StreamingQueryListener):  # type: ignore[misc]
    """A listener that keeps the story of all bounded queries of a session.

    Example:
        ::

            story = tether.sql.Storyteller()
            spark.streams.addListener(story)
            ...
            for event in story.events():
                print(event.what, event.cause, event.detail)
    """

    def __init__(self) -> None:
        self._events: deque[StateEvent] = deque(maxlen=EVENTS_KEPT)
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, int], int] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Nothing happens to state when a query starts."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Note what a batch has reported."""
        progress = event.progress
        for number, operator in enumerate(progress.stateOperators):
            metrics = dict(operator.customMetrics)
            if "tetherBound" in metrics:
                self.note(
                    str(progress.name or progress.id),
                    progress.batchId,
                    number,
                    operator.operatorName,
                    metrics,
                )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing happens to state when there is no data."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing happens to state when a query ends."""

    def note(
        self, query: str, batch: int, number: int, operator: str, metrics: dict[str, int]
    ) -> None:
        """Take in the metrics that one operator has reported of one batch.

        Example:
            >>> story = Storyteller()
            >>> story.note("q", 7, 0, "dedupe", {"tetherBackups": 2, "tetherDivergence": 0})
            >>> story.events()[0].cause
            'divergence passed the threshold, or was about to'
        """
        place: dict[str, Any] = {
            "at": time.time(),
            "query": query,
            "batch": batch,
            "operator": operator,
        }
        told = {name.removeprefix("tether").lower(): value for name, value in metrics.items()}
        found: list[StateEvent] = []
        if told.get("restores"):
            cause = "a query or an executor started without the state in memory"
            found.append(StateEvent(what="restore", cause=cause, detail=told, **place))
        failures = told.get("failures", 0)
        if failures > self._failures.get((query, number), 0):
            cause = "what had changed since the last backups was in memory only"
            found.append(StateEvent(what="loss", cause=cause, detail=told, **place))
        if told.get("backups"):
            cause = "divergence passed the threshold, or was about to"
            found.append(StateEvent(what="backup", cause=cause, detail=told, **place))
        with self._lock:
            self._failures[query, number] = failures
            self._events.extend(found)

    def events(self) -> list[StateEvent]:
        """Everything noted so far, oldest first."""
        with self._lock:
            return list(self._events)
