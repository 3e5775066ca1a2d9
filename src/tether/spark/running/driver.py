"""What ``foreachBatch`` calls: lets the parts of a query run an epoch, then lets Spark commit it."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from tether.chaos.faults import reach
from tether.core.errors import BadValueError
from tether.engine.query.catching_up import CatchUp, graph_of, may_stay, must_be_restored
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.ledger import Spread, bound_of, progress_of, totals_of
from tether.engine.query.log_opening import marks_for
from tether.engine.query.part import Part
from tether.engine.recovery.lost import LostStateError, is_loss, what_was_lost
from tether.observe.story import Story
from tether.protocols.rewind import plan_rewind
from tether.spark.graph.exactness import keeps_rows
from tether.spark.graph.flow import unpack
from tether.spark.graph.split import split
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.logs.source_log import SourceLog
from tether.spark.logs.spool import Spool
from tether.spark.logs.unbacked import note_unbacked, refuse_unbacked
from tether.spark.running.blame import told_to_spark
from tether.spark.running.loop import BehindLoop
from tether.spark.running.recent import RecentGlimpses
from tether.spark.sinks import take_back

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from tether.core.bound import Bound
    from tether.core.graph import SlotId
    from tether.engine.query.ledger import Glimpse, Ledger
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.stores import OpenStore

STOP_SECONDS = 60.0
"""How long the end of a query waits for an epoch that is still at work."""


class EpochDriver:
    """Runs epochs of one prepared query; an instance is the function given to ``foreachBatch``.

    Args:
        query: The query, checked and ready.
        stores: The backup stores of its parts, locked by this query; none where nothing is kept.
        checkpoint: Spark's checkpoint directory.
    """

    def __init__(
        self, query: PreparedQuery, stores: Sequence[OpenStore | None], checkpoint: str
    ) -> None:
        self.query, self._checkpoint = query, checkpoint
        self.run_id = uuid.uuid4().hex
        self.story = Story()
        self._spread = Spread(query.amplification, query.shares_budget)
        self.recent = RecentGlimpses(self._spread)
        self.failure: BaseException | None = None
        self.stopping = False
        """Whether the user has asked for the end: an epoch that breaks off now has not failed."""
        self._session: SparkSession | None = None
        self._lost: tuple[int, str] | None = None
        """The epoch that could not be run because slots had lost their state, and what they said."""
        self._begun_anew = False
        self._cut_anew = False
        """Whether the source was seen to cut its rows into other epochs when it was read again."""
        self._source_log = SourceLog(checkpoint) if keeps_rows(query) else None
        self._query_id = ""
        self._started = threading.Event()
        self._running = threading.Lock()
        cut = split(query)
        spool = Spool(checkpoint, cut.boundary, query)
        feedback = FeedbackBox(apart=query.consistency.splits)
        self._parts = [
            Part(
                query,
                nodes,
                [*sinks, *spool.sinks()] if number == 0 else sinks,
                store=store.store if store else None,
                address=store.address if store else None,
                run_id=self.run_id,
                story=self.story,
                feedback=feedback,
                marks=marks_for(checkpoint, number, store.address) if store else (),
                records_all=number > 0,
            )
            for number, (nodes, sinks, store) in enumerate(
                zip(cut.nodes, cut.sinks, stores, strict=True)
            )
        ]
        self._loop = (
            BehindLoop(self._parts[1], spool, query.consistency.staleness)
            if len(self._parts) > 1
            else None
        )

    def identify(self, query_id: str) -> None:
        """Spark has named the query: epochs may begin."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Run one epoch to the point where Spark may commit it."""
        with self._running:
            try:
                self._run(rows, epoch)
            except BaseException as error:
                if is_loss(error):
                    self._lost = (epoch, what_was_lost(error))
                elif not self.stopping:
                    self.failure = error
                if not isinstance(error, Exception):
                    raise
                raise told_to_spark(error, stopping=self.stopping) from None

    def _run(self, rows: DataFrame, epoch: int) -> None:
        if self._session is None:
            self._open(rows.sparkSession, epoch)
        elif self._begun_anew:
            self._session = rows.sparkSession
            for part in self._parts:
                part.place_anew(self._session)
        self._begun_anew = False
        if self._source_log is not None:
            rows = self._source_log.kept(rows, epoch)
        self._check_rows(epoch)
        self._parts[0].run(unpack(self.query.flow.sources, rows), epoch)
        if self._loop is not None:
            self._loop.follow(epoch)
        self.recent.note(epoch, self._glimpses())
        reach(self.query.faults, "before-spark-commit", -1, epoch)

    def _check_rows(self, epoch: int) -> None:
        """Where slots catch up with others that stayed, only the rows of the first time will do."""
        catch_up = self._parts[0].catch_up
        if catch_up is not None and epoch <= catch_up.through:
            try:
                catch_up.check(SparkCheckpoint(self._checkpoint), epoch)
            except LostStateError:
                self._cut_anew = True
                raise

    def _open(self, session: SparkSession, epoch: int) -> None:
        self._started.wait(60)
        if epoch > 0 and self.query.keeps_backups:
            refuse_unbacked(self._checkpoint)
        elif epoch > 0:
            note_unbacked(self._checkpoint, epoch)
        for part in self._parts:
            part.open(session, self._query_id, epoch)
        if self._loop is not None:
            self._loop.start(session, epoch)
        kept = session.conf.get("spark.sql.streaming.numRecentProgressUpdates", "100")
        self.recent.keep = int(kept or 100)
        # Between these an error grows by nobody knows how much: nothing is promised behind them.
        unknown = [list(link) for link in self.bound().unknown]
        told = {"unknown": unknown} if unknown else {}
        self.story.add("started", "query started", epoch, run=self.run_id, **told)
        self._session = session

    # ---- going back ----------------------------------------------------------------------------

    @property
    def rewind_wanted(self) -> bool:
        """Whether slots have lost their state, and the query must go back to a snapshot."""
        return self._lost is not None

    def rewind(self) -> None:
        """Spark has stopped: go back to the newest complete snapshot; Spark can begin anew then."""
        assert self._lost is not None
        epoch, why = self._lost
        part = self._parts[0]
        # A second loss while slots catch up: they are at other epochs than the rest, so all go back.
        alone = part.catch_up is None and not self._cut_anew and may_stay(self.query)
        part.committed_epoch = epoch - 1
        graph = graph_of(self.query)
        lost = self._lost_slots(part) if alone else frozenset(graph.slots)
        plan = plan_rewind(graph, "rewind", lost, epoch, durable=part.snapshot_epoch)
        checkpoint = SparkCheckpoint(self._checkpoint)
        checkpoint.check(plan.read_from)
        catch_up = None
        if plan.partial:
            again = range(plan.read_from, epoch)
            back = frozenset(each.slot for each in plan.restore)
            rows = {number: checkpoint.rows_of(number) for number in again}
            catch_up = CatchUp(back, epoch - 1, rows)
        checkpoint.announce(plan.read_from)
        reach(self.query.faults, "during-rewind", -1, epoch)
        # Output of epochs that slots catch up with is not given again.
        finish_rewind(checkpoint, self.query, plan.void_from if catch_up is None else epoch)
        part.go_back(plan.read_from - 1, why, catch_up)
        self.story.add(
            "rewound",
            why,
            epoch,
            snapshot=plan.read_from - 1,
            read_from=plan.read_from,
            epochs_again=epoch - plan.read_from,
            slots=len(plan.restore),
            stayed=len(plan.keep),
        )
        self.recent.begin_anew()
        self._lost, self._begun_anew = None, True

    def _lost_slots(self, part: Part) -> frozenset[SlotId]:
        """Slots that must be restored, as far as it takes to ask all of them."""
        every = frozenset(graph_of(self.query).slots)
        try:
            there = part.still_there()
        except Exception:  # executors are dying: who has what is anybody's guess
            return every
        return must_be_restored(self.query, every - there) or every

    # ---- what the handle asks ------------------------------------------------------------------

    def ledgers(self) -> list[Ledger]:
        """The books of all operators, upstream ones first."""
        return [ledger for part in self._parts for ledger in part.ledgers.values()]

    def _glimpses(self) -> list[Glimpse]:
        return [ledger.glimpse() for ledger in self.ledgers()]

    def bound(self, operator: str | None = None) -> Bound:
        """How wrong the answer can be; or one operator's state, with what those before it have lost."""
        only = None if operator is None else self.query.named(operator).name
        return bound_of(self._glimpses(), self._spread, only)

    def progress(self) -> dict[str, Any]:
        """What a progress report says beyond Spark's own."""
        return progress_of(self._glimpses(), self._spread)

    def totals(self) -> dict[str, int]:
        """Sums over all operators."""
        return totals_of(self._glimpses())

    def read_table(self, name: str, operator: str | None) -> DataFrame:
        """A table of an operator's resident state, as of its last committed epoch."""
        if self._session is None:
            raise BadValueError(
                f"The table {name!r} cannot be read yet.",
                why="No epoch has run.",
                do="Wait for the first epoch, for example with processAllAvailable().",
            )
        prepared = self.query.named(operator)
        part = next(part for part in self._parts if prepared.node in part.operators)
        if part.catch_up is not None:
            raise BadValueError(
                f"The table {name!r} cannot be read now.",
                why="After a loss some slots are reading the stream again, and are behind the others.",
                do="Wait for them, for example with processAllAvailable().",
            )
        return part.read_table(prepared, name)

    def drain(self) -> None:
        """Wait until every part has done all epochs that Spark has begun."""
        if self._loop is not None:
            self._loop.drain()

    # ---- the end -------------------------------------------------------------------------------

    def end(self, *, flush: bool) -> None:
        """No epoch runs any more: make durable what is not, and remove the arenas."""
        # Spark's stop() does not wait for a foreachBatch function that is still at work in Python.
        waited = self._running.acquire(timeout=STOP_SECONDS)
        try:
            self._end(flush=flush and waited)
        finally:
            if waited:
                self._running.release()

    def _end(self, *, flush: bool) -> None:
        if self._session is None:
            return
        if self._loop is not None:
            flush = self._loop.end(STOP_SECONDS) and flush
        last = self._parts[0].committed_epoch
        if not self._spark_committed(last):
            last -= 1  # it is run again: what is made durable must be without it
        for part in self._parts:
            if flush:
                part.flush(min(last, part.committed_epoch))
            if flush or not self.query.keeps_backups:
                # After an error the arenas stay: with them a restart loses nothing.
                part.clean()
            part.release()
        self.story.add("stopped", "query stopped", last, flushed=flush)

    def _spark_committed(self, epoch: int) -> bool:
        """Whether Spark's own commit log, wherever it is, has the epoch."""
        assert self._session is not None
        try:
            self._session.read.text(f"{self._checkpoint}/commits/{epoch}").collect()
        except AnalysisException:
            return False
        return True


def finish_rewind(
    checkpoint: SparkCheckpoint, query: PreparedQuery, given_again: int | None = None
) -> None:
    """Do what was announced: by this driver just now, or by one that died over it.

    Args:
        checkpoint: Spark's.
        query: The query.
        given_again: First epoch whose output will be given again; by default, as after a crash, the
            first that is read again.
    """
    read_from = checkpoint.announced()
    if read_from is None:
        return
    for _, sink in query.sinks:
        take_back(sink, read_from if given_again is None else given_again)
    checkpoint.go_back(read_from)
    checkpoint.done()
