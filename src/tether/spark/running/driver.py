"""What ``foreachBatch`` calls: lets the lanes of a query run an epoch, then lets Spark commit it."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

from tether.chaos.faults import reach
from tether.core.ids import Epoch, epoch_after
from tether.engine.query.ledger import Spread, bound_of, progress_of, tentative, totals_of
from tether.engine.query.opening import open_lane
from tether.engine.query.rescaling import UnfinishedError
from tether.engine.query.rewinder import Rewinder
from tether.engine.recovery.lost import is_loss, what_was_lost
from tether.observe.story import Story
from tether.spark.graph.exactness import available_of, keeps_rows
from tether.spark.graph.flow import unpack
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.logs.source_log import SourceLog
from tether.spark.logs.stream import SparkStream
from tether.spark.logs.unbacked import note_unbacked, refuse_unbacked
from tether.spark.running.after_loss import meanwhile_for
from tether.spark.running.asking import ask_for_snapshot, table_of
from tether.spark.running.available import AvailableRun
from tether.spark.running.blame import told_to_spark
from tether.spark.running.ending import end_lanes
from tether.spark.running.lanes import lanes_of
from tether.spark.running.loop import BehindLoop
from tether.spark.running.open_lanes import OpenLanes
from tether.spark.running.outcome import Outcome
from tether.spark.running.recent import RecentGlimpses
from tether.spark.running.rescaling import (
    await_spark,
    lane_to_rescale,
    move_slots,
    with_slots,
)
from tether.spark.running.telling import feed_of, policies_of, standing_of, told_copies
from tether.spark.tasks.cluster import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from tether.core.bound import Bound
    from tether.engine.deadline import Deadline
    from tether.engine.query.copies import CopyStanding
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.ledger import Glimpse, Ledger
    from tether.engine.query.runner import Runner
    from tether.spark.gateways.keeper import GatewayKeeper
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.stores import OpenStore

START_SECONDS = 60.0
"""How long the first epoch waits for the query's id, which Spark tells when start() returns."""


class EpochDriver:
    """Runs epochs of one prepared query; an instance is the function given to ``foreachBatch``.

    Args:
        query: The query, checked and ready.
        stores: The backup stores of its lanes, locked by this query; none where nothing is kept.
        checkpoint: Spark's checkpoint directory.
    """

    def __init__(
        self, query: PreparedQuery, stores: Sequence[OpenStore | None], checkpoint: str
    ) -> None:
        self.query, self._checkpoint = query, checkpoint
        self.run_id = uuid.uuid4().hex
        self.feed = feed_of(query, stores[0], self.run_id)
        self.story = Story(self.feed.tell)
        self._spread = Spread(query.amplification, query.shares_budget)
        self.recent = RecentGlimpses(self._spread)
        self._gateways: GatewayKeeper | None = None
        self.outcome = Outcome()
        self._running: OpenLanes | None = None
        self._lost: tuple[Epoch, str] | None = None
        """The epoch that could not be run because slots had lost their state, and what they said."""
        self._over = False
        """Whether no epoch will run any more."""
        self._restarted = False
        """Whether Spark has started its stream again, in another session, since the last epoch."""
        self._opened_early = False
        """Whether lanes were opened before Spark's first epoch, in another session."""
        self._source_log = SourceLog(checkpoint) if keeps_rows(query) else None
        self._query_id = ""
        self._started = threading.Event()
        self._at_work = threading.Lock()
        self._stores = stores
        self._lanes, self._spool = lanes_of(query, stores, checkpoint, self.run_id, self.story)
        self._meanwhile = meanwhile_for(
            query, checkpoint, self.story, swap=self._swap, fail=self.outcome.fail
        )
        policy = available_of(query)
        self._available = (
            None if policy is None else AvailableRun(query, policy, checkpoint, self.story)
        )
        for marks in (self._meanwhile, self._available):
            if marks is not None:
                graph, plan = self._lanes[0]
                self._lanes[0] = (marks.sinks_of(graph), plan)
        self.feed.show_healing(self.healing)

    def _swap(self, plan: LanePlan, runner: Runner[SparkCluster]) -> None:
        """A twin's slots are the query's from now on."""
        graph, _ = self._lanes[0]
        self._lanes[0] = (graph, plan)
        self._running = OpenLanes([runner], Rewinder(runner, self._stream), None)

    def speak_with(self, gateways: GatewayKeeper) -> None:
        """The query reads these gateways: tell them what it has done with their items."""
        self._gateways = gateways

    def open_early(self) -> None:
        """Finish what an earlier driver began, without waiting for an epoch: a stream can be idle.

        Without it a lane is opened by its first epoch.
        """
        if self._meanwhile is None or not self._meanwhile.unfinished:
            return
        with self._at_work:
            if self._running is None and self.outcome.failure is None:
                session = self.query.flow.sources[0].rows.sparkSession
                # A separate session, as Spark's streams have, so that settings for epochs do not affect
                # the user's.
                session = session.newSession() if hasattr(session, "newSession") else session
                epoch = SparkCheckpoint(self._checkpoint).next_epoch()
                self._running, self._opened_early = self._open(session, epoch), True

    def identify(self, query_id: str, name: str | None = None) -> None:
        """Spark has named the query: epochs may begin."""
        self._query_id = query_id
        self.feed.begin(query_id, name)
        self._started.set()

    def __call__(self, rows: DataFrame, epoch: Epoch) -> None:
        """Run one epoch to the point where Spark may commit it."""
        with self._at_work:
            try:
                self._run(rows, epoch)
            except BaseException as error:
                if is_loss(error):
                    self._lost = (epoch, what_was_lost(error))
                elif not self.outcome.ending:
                    self.outcome.failed(error)
                if not isinstance(error, Exception):
                    raise
                raise told_to_spark(error, stopping=self.outcome.stopping) from None

    def _run(self, rows: DataFrame, epoch: Epoch) -> None:
        if self._running is None:
            self._running = self._open(rows.sparkSession, epoch)
        elif self._opened_early or self._restarted:
            self._running.renew(rows.sparkSession, stay=self._opened_early)
        self._restarted = self._opened_early = False
        running = self._running
        began = time.perf_counter()
        if self._source_log is not None:
            rows = self._source_log.kept(rows, epoch)
        running.rewinder.check_rows(epoch)
        given = unpack(self.query.flow.sources, rows)
        if self._available is not None:
            self._available.run(running.runners[0], given, epoch)
        elif self._meanwhile is None:
            running.runners[0].run(given, epoch)
        else:
            self._meanwhile.run(given, epoch)
        if running.behind is not None:
            running.behind.follow(epoch)
        if self._gateways is not None:
            self._gateways.after_epoch(epoch, running.snapshot_epoch())
            self._note_sources()
        glimpses = self._glimpses()
        rows_read = running.runners[0].cluster.rows_read
        self.recent.note(epoch, glimpses, self._tentative_since, rows_read=rows_read)
        newest = [ledger.newest() for ledger in self.ledgers()]
        self.feed.epoch(epoch, time.perf_counter() - began, glimpses, newest)
        self.feed.copies(told_copies(self.copies()))
        reach(self.query.faults, "before-spark-commit", -1, epoch)

    def _note_sources(self) -> None:
        if self._gateways is not None:
            for ledger in self.ledgers():
                ledger.note_sources(self._gateways.facts())
            self.feed.gateways(self._gateways.now())

    def _open(self, session: SparkSession, epoch: Epoch) -> OpenLanes:
        self._started.wait(START_SECONDS)
        if self._available is not None:
            epoch = self._available.number(epoch)
        if epoch > 0 and self.query.keeps_backups:
            refuse_unbacked(self._checkpoint)
        elif epoch > 0:
            note_unbacked(self._checkpoint, epoch)
        runners = self._runners(session, epoch)
        behind = None
        if len(runners) > 1:
            behind = BehindLoop(runners[1], self._spool, self.query.consistency.staleness)
            behind.start(session, epoch)
        kept = session.conf.get("spark.sql.streaming.numRecentProgressUpdates", "100")
        self.recent.keep(int(kept or 100))
        # Between these it is not known how much an error grows, so nothing is promised after them.
        unknown = [list(link) for link in self.bound().unknown]
        told = {"unknown": unknown} if unknown else {}
        self.story.add("started", "query started", epoch, run=self.run_id, **told)
        if self._meanwhile is not None:
            self._meanwhile.open(self._lanes[0], runners[0], epoch)
        return OpenLanes(runners, Rewinder(runners[0], self._stream), behind)

    def _runners(self, session: SparkSession, epoch: Epoch) -> list[Runner[SparkCluster]]:
        return [
            open_lane(plan, SparkCluster(graph, self.story, session), self._query_id, epoch)
            for graph, plan in self._lanes
        ]

    def _stream(self) -> SparkStream:
        return SparkStream(self._checkpoint, (sink for _, sink in self.query.sinks))

    # ---- going back ----------------------------------------------------------------------------

    @property
    def rewind_wanted(self) -> bool:
        """Whether slots have lost their state, and the query must go back to a snapshot."""
        return self._lost is not None

    def rewind(self) -> None:
        """Spark has stopped: go back to the newest complete snapshot; Spark can start again then."""
        if self._lost is None or self._running is None:
            return
        self._running.rewinder.rewind(*self._lost)
        self.recent.begin_run()
        self._lost, self._restarted = None, True

    @property
    def runners(self) -> list[Runner[SparkCluster]]:
        """The open lanes, that of the sources first; none before the first epoch."""
        return [] if self._running is None else self._running.runners

    # ---- what the handle asks ------------------------------------------------------------------

    def ledgers(self) -> list[Ledger]:
        """The ledgers of all operators, upstream ones first."""
        return [ledger for _, plan in self._lanes for ledger in plan.ledgers.values()]

    def copies(self) -> tuple[CopyStanding, ...]:
        """Every seat of slots that have copies, as of the last epoch."""
        return standing_of(self.runners)

    def _glimpses(self) -> list[Glimpse]:
        return [ledger.glimpse() for ledger in self.ledgers()]

    def bound(self, operator: str | None = None) -> Bound:
        """How wrong the answer can be; or one operator's state, with what those before it have lost."""
        self._note_sources()
        only = None if operator is None else self.query.named(operator).name
        held = 0 if self._available is None else self._available.ahead_bytes
        bound = bound_of(self._glimpses(), self._spread, only)
        return tentative(bound, self._tentative_since, held)

    @property
    def _tentative_since(self) -> int | None:
        """First epoch whose rows are tentative, if any are."""
        if self._available is not None:
            return self._available.tentative_since
        return None if self._meanwhile is None else self._meanwhile.tentative_since

    def progress(self) -> dict[str, Any]:
        """What a progress report says beyond Spark's own."""
        told = progress_of(self._glimpses(), self._spread, self._tentative_since)
        healing = self.healing()
        return told if healing is None else {**told, "healing": healing}

    def healing(self) -> dict[str, Any] | None:
        """What is missing from the query, and how far its twin has come; None: nothing is."""
        if self._available is not None:
            return self._available.told()
        return None if self._meanwhile is None else self._meanwhile.told()

    def await_whole(self, timeout: float | None = None) -> bool:
        """Wait until nothing is missing from the query any more; False if that takes longer."""
        return self._meanwhile is None or self._meanwhile.await_whole(timeout)

    def heal(self) -> bool:
        """Let a twin read again what was lost; False if nothing was, or the policy heals nothing."""
        return self._meanwhile is not None and self._meanwhile.heal_now()

    def stop_twin(self, deadline: Deadline) -> None:
        """The query is being stopped: do not wait for a twin."""
        if self._meanwhile is not None:
            self._meanwhile.stop(deadline)

    def totals(self) -> dict[str, int]:
        """Sums over all operators."""
        return totals_of(self._glimpses())

    def snapshot(self) -> None:
        """Begin a snapshot with the next epoch."""
        ask_for_snapshot(self.runners)

    def read_table(self, name: str, operator: str | None) -> DataFrame:
        """A table of an operator's resident state, as of its last committed epoch."""
        return table_of(self.runners, self.query.named(operator), name)

    def drain(self) -> None:
        """Wait until every lane has done all epochs that Spark has begun."""
        if self._running is not None and self._running.behind is not None:
            self._running.behind.drain()
        self.await_whole()

    # ---- another number of slots ---------------------------------------------------------------

    def rescale(self, operator: str, slots: int) -> None:
        """Give an operator another number of slots, between two epochs."""
        with self._at_work:
            runner = None if self._running is None else self._running.runners[0]
            runner = lane_to_rescale(
                runner,
                ended=self._over or self.outcome.ending,
                going_back=self._lost is not None,
                twin=self._meanwhile is not None or self._available is not None,
            )
            wanted = with_slots(self.query, operator, slots)
            lanes = lanes_of(wanted, self._stores, self._checkpoint, self.run_id, self.story).lanes
            await_spark(runner, self._checkpoint)
            try:
                if not move_slots(runner, lanes[0][1], self._query_id):
                    return
            except UnfinishedError as error:
                why = error.__cause__ or error
                self.outcome.fail(why)
                raise why from None
            self.query, self._lanes, self._running = wanted, lanes, None
            self._spread = Spread(wanted.amplification, wanted.shares_budget)
            self.recent.spread_by(self._spread)
            self.feed.resized(policies_of(wanted), wanted.amplification)
            epoch = epoch_after(runner.committed_epoch)
            runners = self._runners(runner.cluster.session, epoch)
            self._running = OpenLanes(runners, Rewinder(runners[0], self._stream), None)
            reach(self.query.faults, "rescale-reopened", -1, epoch)

    # ---- the end -------------------------------------------------------------------------------

    def end(self, deadline: Deadline, *, flush: bool) -> None:
        """No epoch runs any more: make durable what is not yet, and remove the arenas.

        Args:
            deadline: The time limit for waiting for running work.
            flush: Whether to make state durable; not after an error.
        """
        # Spark's stop() does not wait for a foreachBatch function that is still running in Python.
        self._over = True
        waited = self._at_work.acquire(timeout=deadline.left)
        try:
            self._end(deadline, flush=flush and waited)
        finally:
            if waited:
                self._at_work.release()
            failure = self.outcome.failure
            self.feed.end("stopped" if failure is None else "failed", str(failure or ""))

    def _end(self, deadline: Deadline, *, flush: bool) -> None:
        if self._gateways is not None:
            self._gateways.end()
        running = self._running
        if running is None:
            return
        if running.behind is not None:
            flush = running.behind.end(deadline.left) and flush
        self.stop_twin(deadline)
        if self._available is not None:
            self._available.stop()
        last = end_lanes(
            running.runners,
            self._checkpoint,
            flush=flush,
            clean=not self.query.keeps_backups,
            spark_epoch=None if self._available is None else self._available.spark_epoch,
        )
        self.story.add("stopped", "query stopped", last, flushed=flush)
