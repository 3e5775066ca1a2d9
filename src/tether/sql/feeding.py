"""The feed of bounded SQL queries: the same facts as a query of operators tells, from Spark's progress.

Spark sums up what the partitions of a stateful operator report, so an operator is one slot here: all its
partitions together.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from tether.core.errors import TetherError
from tether.core.ids import Epoch
from tether.observe.backstage import Backstage
from tether.observe.facts import EpochFigures, OperatorFacts, QueryFacts, SlotsNow, finite
from tether.observe.feed import Feed
from tether.observe.feed_log import FeedLog
from tether.observe.running import enlist
from tether.observe.story import Event
from tether.sql.progress import StateBound, bounds_of
from tether.sql.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tether.observe.facts import Fact

_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.Lock()


def feed_session(spark: SparkSession) -> None:
    """Keep feeds of all bounded queries that the session starts from now on; once is enough."""
    with _lock:
        if spark in _sessions:
            return
        _sessions.add(spark)
    spark.streams.addListener(SqlFeeds(spark))


class SqlFeeds(StreamingQueryListener):  # type: ignore[misc]
    """Keeps the feed of every bounded query of a session."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark
        self._queries: dict[str, SqlFeed] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Look where the query keeps its state, and what it was promised."""
        theta, place = None, None
        with contextlib.suppress(Exception):  # of a query that is over already, or another Spark
            theta, place = self._settings(str(event.id))
        self._queries[str(event.runId)] = SqlFeed(
            str(event.id), str(event.runId), event.name or "", promised=theta, place=place
        )

    def _settings(self, query_id: str) -> tuple[float | None, str | None]:
        assert self._spark is not None
        found: Any = next(one for one in self._spark.streams.active if str(one.id) == query_id)
        inner = found._jsq.streamingQuery()
        settings = inner.sparkSessionForStream().conf()
        theta = float(settings.get(PREFIX + "maxStateError"))
        return finite(theta), str(inner.resolvedCheckpointRoot())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Take in what a batch has reported."""
        query = self._queries.get(str(event.progress.runId))
        if query is not None:
            query.progress(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The last word."""
        query = self._queries.pop(str(event.runId), None)
        if query is not None:
            query.end(event.exception or "")


class SqlFeed:
    """The feed of one run of one query.

    Args:
        query_id: Spark's id of the query.
        run: Spark's id of the run.
        name: The user's name for it, if any.
        promised: Θ, where it is known.
        place: Its checkpoint, where the feed is kept; None: in memory only.
    """

    def __init__(
        self, query_id: str, run: str, name: str, *, promised: float | None, place: str | None
    ) -> None:
        self._id, self._run, self._name, self._promised = query_id, run, name, promised
        self._facts: QueryFacts | None = None
        self._log: FeedLog | None = None
        if place is not None:
            with contextlib.suppress(TetherError):
                self._log = FeedLog(place, {}, run, lambda: self._facts)
        self.feed = Feed(self._log)
        self._stage = Backstage(self._log.flush if self._log else None)
        self._before: dict[int, StateBound] = {}
        self._backed_up: dict[int, tuple[int, float]] = {}
        self._events = 0

    def progress(self, progress: Any) -> None:
        """A batch has ended."""
        told = [
            {"operatorName": one.operatorName, "customMetrics": dict(one.customMetrics), "of": one}
            for one in progress.stateOperators
        ]
        bounds = list(bounds_of(told))
        if not bounds:
            return
        at = time.time()
        if self._facts is None:
            self._begin(at, bounds, told)
        batch = progress.batchId
        for number, (bound, one) in enumerate(zip(bounds, told, strict=True)):
            self._tell(number, batch, at, bound, one["customMetrics"])
        figures = self._figures(progress, at, bounds, told)
        slots = self._slots(batch, at, bounds, told)
        self._before = dict(enumerate(bounds))
        for fact in (figures, slots):
            self._do(fact)

    def _do(self, fact: Fact) -> None:
        self._stage.do(lambda: self.feed.take(fact))

    def _begin(self, at: float, bounds: Sequence[StateBound], told: list[dict[str, Any]]) -> None:
        names = _names([one.operator for one in bounds])
        self._facts = QueryFacts(
            at=at,
            id=self._id,
            run=self._run,
            name=self._name or " → ".join(names),
            door="sql",
            policy="bounded state store"
            + ("" if self._promised is None else f", max_state_error={self._promised:g}"),
            operators=tuple(
                OperatorFacts(name=name, slots=one["of"].numShufflePartitions or 1)
                for name, one in zip(names, told, strict=True)
            ),
            version=importlib.metadata.version("tether"),
        )
        self._do(self._facts)
        enlist(self.feed)

    def _figures(
        self, progress: Any, at: float, bounds: Sequence[StateBound], told: list[dict[str, Any]]
    ) -> EpochFigures:
        metrics = [one["customMetrics"] for one in told]
        rows = sum(one["of"].numRowsTotal for one in told)
        memory = sum(one["of"].memoryUsedBytes for one in told)
        backups = sum(one.get("tetherBackups", 0) for one in metrics)
        written = sum(one.get("tetherBytes", 0) for one in metrics)
        spent = max(one.spent for one in bounds)
        left = None if self._promised is None else max(0.0, self._promised - spent)
        lost = sum(
            one.failures - self._before[number].failures if number in self._before else 0
            for number, one in enumerate(bounds)
        )
        return EpochFigures(
            at=at,
            epoch=progress.batchId,
            seconds=progress.batchDuration / 1000,
            rows_in=progress.numInputRows,
            rows_out=max(0, progress.sink.numOutputRows),
            promised=self._promised,
            spent=finite(spent),
            at_risk=finite(max(one.at_risk for one in bounds)),
            worst=finite(max(one.worst_now for one in bounds)),
            left=left,
            backups={"theta": backups} if backups else {},
            backup_bytes={"theta": written} if written else {},
            changed=sum(one["of"].numRowsUpdated for one in told),
            entry_bytes=memory / rows if rows else 0.0,
            resident_bytes=memory,
            fullness=max(
                (one.at_risk / one.threshold for one in bounds if 0 < one.threshold < float("inf")),
                default=0.0,
            ),
            losses=max(0, lost),
        )

    def _slots(
        self, batch: int, at: float, bounds: Sequence[StateBound], told: list[dict[str, Any]]
    ) -> SlotsNow:
        for number, one in enumerate(told):
            if one["customMetrics"].get("tetherBackups"):
                self._backed_up[number] = (batch, at)
        backed_up = [self._backed_up.get(number, (-1, 0.0)) for number in range(len(bounds))]
        return SlotsNow(
            at=at,
            epoch=Epoch(batch),
            operator=list(range(len(bounds))),
            slot=[0] * len(bounds),
            divergence=[finite(one.at_risk) for one in bounds],
            theta=[finite(one.threshold) for one in bounds],
            executor=[0] * len(bounds),
            backup_epoch=[epoch for epoch, _ in backed_up],
            backup_at=[when for _, when in backed_up],
            failures=[one.failures for one in bounds],
            rows=[one["of"].numRowsUpdated for one in told],
            resident_bytes=[one["of"].memoryUsedBytes for one in told],
            executors=["all partitions"],
        )

    def _tell(
        self, number: int, batch: int, at: float, bound: StateBound, metrics: dict[str, int]
    ) -> None:
        assert self._facts is not None
        before = self._before.get(number)
        place = {"operator": self._facts.operators[number].name, "slot": 0}
        if metrics.get("tetherBackups"):
            self._events += 1
            detail = {"bytes": metrics.get("tetherBytes", 0), "backups": metrics["tetherBackups"]}
            event = Event(at=at, epoch=Epoch(batch), what="backup", cause="theta", detail=detail,
                          number=self._events, **place)  # type: ignore[arg-type]  # fmt: skip
            self._stage.do(lambda: self.feed.event(event), must=False)
        failures = bound.failures - (before.failures if before else bound.failures)
        if failures > 0 and before is not None:
            self._events += 1
            cost: dict[str, Any] = {
                "bound": bound.spent - before.spent,
                "exact": bound.spent == before.spent,
                "allowed": before.threshold,
                "partitions": failures,
            }
            cause = "what had changed since the last backups was in memory only"
            lost = Event(at=at, epoch=Epoch(batch), what="recovery", cause=cause, detail=cost,
                         number=self._events, **place)  # type: ignore[arg-type]  # fmt: skip
            self._stage.do(lambda: self.feed.event(lost))

    def end(self, why: str) -> None:
        """The run is over."""
        if self._facts is None:
            return
        self._stage.do(lambda: self.feed.close("failed" if why else "stopped", why))
        if self._log is not None:
            log = self._log
            self._stage.do(lambda: log.flush(last=True))


def _names(operators: list[str]) -> list[str]:
    """Names that differ: a query may have two operators of one kind.

    Example:
        >>> _names(["dedupe", "stateStoreSave", "dedupe"])
        ['dedupe', 'stateStoreSave', 'dedupe 3']
    """
    return [
        name if name not in operators[:number] else f"{name} {number + 1}"
        for number, name in enumerate(operators)
    ]
