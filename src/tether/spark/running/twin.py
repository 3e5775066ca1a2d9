"""A twin as a second stream of Spark's in the same application: the epochs of the first one, again.

It has a checkpoint of its own, made from the query's, and resident state of its own. It runs only
epochs that the query has cut, and each with the query's rows.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from tether.core.errors import TetherError
from tether.core.ids import Epoch
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.twin import may_merge, open_twin
from tether.observe.story import QuietStory
from tether.spark.changes.outlet import bound_outlet
from tether.spark.graph.flow import pack, unpack
from tether.spark.logs.twin_checkpoint import TwinCheckpoint, as_one
from tether.spark.running.blame import told_to_spark
from tether.spark.tasks.cluster import SparkCluster
from tether.sql.checkpoints import overlapped_where_far

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.spark.changes.columns import Mark
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.logs.twin_checkpoint import CutEpoch
    from tether.spark.tasks.jobs import LaneGraph

POOL = "tether-twin"
"""Spark's pool for the twin's jobs: where the scheduler is FAIR, main's do not queue behind them."""

FEWEST, MANY = 2, 5
"""Number of epochs without output that are run as one: at the start, and later, when the stream of the
twin must start again for that, which costs about as much as some epochs."""
_LEAST_READERS = "spark.sql.files.minPartitionNum"
_COMPACT = "spark.sql.streaming.fileSource.log.compactInterval"


class Lead(Protocol):
    """The run that a twin follows."""

    def cut(self, epoch: Epoch) -> CutEpoch | None:
        """The cut of an epoch by main; None if main has not finished it yet."""
        ...

    def twin_mark(self, epoch: Epoch) -> Mark | None:
        """What the twin's rows of an epoch are; None where it gives none."""
        ...

    def main_mark(self, epoch: Epoch) -> Mark:
        """The kind of main's rows of an epoch."""
        ...

    def before_twin_epoch(self, twin: Twin) -> None:
        """Wait for the twin's turn to use the cluster, and for main to be ahead of it."""
        ...

    def twin_ended(self, twin: Twin, epoch: Epoch) -> None:
        """The twin has finished an epoch; take over if it has caught up."""
        ...

    def await_first_answer(self, twin: Twin) -> None:
        """Wait until main has finished the epoch in which the loss was found."""
        ...

    def await_executors(self, twin: Twin) -> None:
        """Let Spark replace executors that have died, before the twin's slots are placed."""
        ...

    def silent_through(self) -> Epoch:
        """The last epoch of main for which the twin's output is not needed."""
        ...

    def idle(self) -> None:
        """Wait a moment: there is nothing to run."""
        ...


class Twin:
    """One twin, from its start to the take-over or its end.

    Args:
        number: Its number among the twins of this driver.
        snapshot: Epoch of the snapshot that it starts from.
        query: The query.
        lane: Its graph, with main's sinks, and its plan.
        main: The run that is the query.
        lead: What it follows.
        story: The query's.
        checkpoint: The query's.
    """

    def __init__(
        self,
        *,
        number: int,
        snapshot: Epoch,
        query: PreparedQuery,
        lane: tuple[LaneGraph, LanePlan],
        main: Runner[SparkCluster],
        lead: Lead,
        story: Story,
        checkpoint: str,
    ) -> None:
        self.number, self.snapshot = number, snapshot
        self._query, self._main, self._lead, self._story = query, main, lead, story
        graph, plan = lane
        self.arena = f"{main.books.ids.query}-twin-{uuid.uuid4().hex[:12]}"
        sinks = [(node, bound_outlet(sink, self._mark)) for node, sink in graph.sinks]
        self.graph = replace(graph, sinks=sinks)
        self._story_of_twin = QuietStory(story)
        self.plan = replace(
            plan,
            run_id=uuid.uuid4().hex,
            reports=self._story_of_twin,
            feedback=FeedbackBox(),
            marks=(),
        )
        session = main.cluster.session
        self._session = session
        self._checkpoint = TwinCheckpoint(checkpoint, int(session.conf.get(_COMPACT, "10") or 10))
        self.runner: Runner[SparkCluster] | None = None
        self.ended = False
        """Whether it must not run any more: it has taken over, or has been replaced."""
        self._is_main = False
        self._placed = False
        """Whether its slots are placed in the current stream."""
        self._laid: CutEpoch | None = None
        self._merged: CutEpoch | None = None
        """Epochs that it runs as one: the next ones, or the last that it has run so."""
        self._merges_next = False
        """Whether its checkpoint is to be made again, for those."""
        self._failure: Exception | None = None
        self._stream: StreamingQuery | None = None
        self.epochs = 0
        """Number of epochs that it has run."""

    # ---- the thread that follows ----------------------------------------------------------------

    def await_its_turn(self) -> None:
        """Wait until main has answered once since the loss, and dead executors are replaced."""
        self._lead.await_first_answer(self)
        self._lead.await_executors(self)

    def follow(self) -> None:
        """Run epochs until it has taken over or is ended.

        Raises:
            Exception: It has failed.
        """
        if self.ended:
            return
        self._merged = self._silent_epochs(FEWEST)
        self._checkpoint.make(self.snapshot, self._merged)
        laid = -1
        while not self.ended:
            self._failure = self._laid = None
            self._run_stream()
            if self._merges_next:
                self._merges_next = False
                self._checkpoint.make(self._at, self._merged)
                continue
            if self._laid is None:
                if self._failure is not None and not self.ended:
                    raise self._failure
                continue
            if self._laid.epoch == laid:
                raise TetherError(
                    f"The source does not give the rows of epoch {laid} again.",
                    why="It was asked for just those that Spark's log names, and gave others.",
                    do="Check that nothing changes or deletes what the source has given: files, "
                    "the topic's retention, cleanSource.",
                )
            laid = self._laid.epoch
            self._checkpoint.lay(self._laid)

    @property
    def _at(self) -> Epoch:
        """The last epoch that it has run; the snapshot's before the first."""
        return self.snapshot if self.runner is None else self.runner.committed_epoch

    def _silent_epochs(self, fewest: int) -> CutEpoch | None:
        """The next epochs, to be run as one, if there are so many, and it is allowed."""
        numbers = range(self._at + 1, self._lead.silent_through() + 1)
        # From nothing there are no offsets to begin with.
        if self.snapshot < 0 or len(numbers) < fewest or not may_merge(self.plan):
            return None
        cuts = [self._lead.cut(epoch) for epoch in map(Epoch, numbers)]
        known = [cut for cut in cuts if cut is not None]
        return as_one(known) if len(known) == len(cuts) else None

    def _run_stream(self) -> None:
        rows = pack(self._query.flow.sources, self._query.reading)
        context = self._session.sparkContext
        if hasattr(context, "setLocalProperty"):
            context.setLocalProperty("spark.scheduler.pool", POOL)
        self._placed = False
        writer = rows.writeStream.foreachBatch(self._epoch)
        writer = writer.option("checkpointLocation", self._checkpoint.url)
        with overlapped_where_far(rows.sparkSession, self._checkpoint.url):
            stream = self._stream = writer.start()
        try:
            while stream.isActive and not self.ended:
                stream.processAllAvailable()
                self._lead.idle()
        except Exception as error:
            if self._laid is None and self._failure is None and not self.ended:
                self._failure = error
        finally:
            stream.stop()

    def end(self) -> None:
        """Stop running epochs."""
        self.ended = True
        if self._stream is not None:
            self._stream.stop()

    def remove(self) -> None:
        """Remove its resident state and its checkpoint."""
        if self.runner is not None:
            self.runner.clean()
            self.runner.release()
        self.remove_checkpoint()

    def remove_checkpoint(self) -> None:
        """Remove its copy of Spark's logs, which is not needed any more."""
        self._checkpoint.remove()

    # ---- an epoch ------------------------------------------------------------------------------

    def _epoch(self, rows: DataFrame, epoch: Epoch) -> None:
        """What Spark calls with an epoch's rows."""
        try:
            self._run(rows, epoch)
        except Exception as error:
            stopping = self.ended or self._merges_next or self._laid is not None
            if not stopping:
                self._failure = error
            raise told_to_spark(error, stopping=stopping) from None

    def _run(self, rows: DataFrame, epoch: Epoch) -> None:
        self._lead.before_twin_epoch(self)
        merged = self._merged if self._merged is not None and self._merged.epoch == epoch else None
        if merged is None and (more := self._silent_epochs(MANY)) is not None and not self.ended:
            self._merged, self._merges_next = more, True
            raise InterruptedError("several epochs come as one")
        cut = None if self.ended else merged or self._lead.cut(epoch)
        if cut is None:
            raise InterruptedError("the twin is ended")
        if self._checkpoint.rows_of(epoch) != cut.rows:
            self._laid = cut
            raise InterruptedError("the epoch is cut otherwise than the query's")
        before = self._at
        runner = self._open(rows.sparkSession)
        given = unpack(self._query.flow.sources, rows)
        if merged is None:
            runner.run(given, epoch)
        else:
            runner.run_as_one(given, epoch)
        self.epochs += epoch - before
        self._lead.twin_ended(self, epoch)
        if self.ended:
            raise InterruptedError("the twin has taken over")

    def _open(self, session: SparkSession) -> Runner[SparkCluster]:
        if not self._placed:
            # This stream's session only. Spark would read files on all cores at once, main's too.
            session.conf.set(_LEAST_READERS, 1)
        if self.runner is None:
            cluster = SparkCluster(self.graph, self._story_of_twin, session, strict=False)
            cluster.copy_like(self._main.cluster)
            self.runner = open_twin(
                self.plan, cluster, self._main, snapshot=self.snapshot, arena=self.arena
            )
        elif not self._placed:
            # Each start of the stream has a session of its own. PySpark wraps that one again for every
            # epoch, so the object says nothing.
            self.runner.cluster.renew(session)
            self.runner.cluster.place(stay=True)
        self._placed = True
        return self.runner

    def _mark(self, epoch: Epoch) -> Mark | None:
        lead = self._lead
        return lead.main_mark(epoch) if self._is_main else lead.twin_mark(epoch)

    # ---- the take-over -------------------------------------------------------------------------

    def become_main(self, session: SparkSession) -> Runner[SparkCluster]:
        """Its slots are the query's from now on: they continue in main's stream."""
        assert self.runner is not None
        self._story_of_twin.speak()
        self.ended = self._is_main = True
        self.runner.cluster.renew(session)
        self.runner.cluster.place(stay=True)
        return self.runner
