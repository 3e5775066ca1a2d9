"""The handle of a running query: Spark's interface, with Tether's additions."""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from tether.engine.deadline import Deadline
from tether.observe.card import card
from tether.planning.rates import measured_rates
from tether.spark.graph.prepared import explain_query
from tether.spark.graph.shape import graph_of_flow, topology_of_flow
from tether.spark.running.blame import tether_error
from tether.spark.running.ending import STOP_SECONDS
from tether.spark.running.stores import release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from tether.core.bound import Bound
    from tether.core.errors import TetherError
    from tether.observe.feed import Feed
    from tether.observe.story import Event
    from tether.planning.topology import Partitioning, Topology
    from tether.spark.running.driver import EpochDriver
    from tether.spark.running.stores import OpenStore
    from tether.spark.running.supervision import Supervisor
    from tether.ui.serving import Page


class Query:
    """A running Tether query.

    ``status``, ``lastProgress``, ``recentProgress``, ``awaitTermination``, ``stop``, ``exception``,
    ``id``, ``runId``, ``name`` and ``isActive`` are as in Spark's ``StreamingQuery``; the progress
    reports carry one more entry, ``"tether"``. New are ``bound()`` and ``story()``.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        driver: EpochDriver,
        stores: Sequence[OpenStore | None],
        throwaway_checkpoint: str | None,
    ) -> None:
        self._supervisor, self._driver, self._stores = supervisor, driver, stores
        self._throwaway_checkpoint = throwaway_checkpoint
        self._closing = threading.Lock()
        self._closed = False
        self._page: Page | None = None

    @property
    def _query(self) -> StreamingQuery:
        """Spark's query; another one after a rewind."""
        return self._supervisor.current

    # ---- as Spark has it -----------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Id of the query, the same after every restart from its checkpoint."""
        return str(self._query.id)

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's name
        """Id of this run of the query; another one after a rewind."""
        return str(self._query.runId)

    @property
    def name(self) -> str | None:
        """Name given by the user, if any."""
        name: str | None = self._query.name
        return name

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the query is running."""
        current = self._query
        if current.isActive:
            return True
        busy = self._driver.healing() is not None and not self._closed
        busy = busy or self._supervisor.goes_on(current)
        return busy and self._driver.outcome.failure is None

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing now."""
        return dict(self._query.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Spark's newest progress report, with what Tether adds under ``"tether"``."""
        progress = self._query.lastProgress
        if progress is None:
            return None
        progress = self._driver.recent.with_rows(-1, progress)
        return {**progress, "tether": self._driver.progress()}

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name
        """Spark's recent progress reports; epochs that were run again are in it twice.

        Each has what Tether knew at the end of its epoch under ``"tether"``.
        """
        recent = self._driver.recent
        return [
            {
                **recent.with_rows(run, progress),
                "tether": recent.progress(run, progress["batchId"]),
            }
            for run, query in enumerate([*self._supervisor.past, self._query])
            for progress in query.recentProgress
        ]

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends, or for ``timeout`` seconds.

        Ctrl-C while waiting stops the query normally: state is flushed, arenas are removed.

        Raises:
            TetherError: The query ended with an error; it says which operator, slot and epoch.
        """
        try:
            ended = self._await(timeout)
        except KeyboardInterrupt:
            self.stop()
            raise
        except Exception as error:
            self._close(Deadline(STOP_SECONDS), flush=False)
            raise self._own(error) from (self._driver.outcome.failure or error)
        if not self.isActive:
            self._close(Deadline(STOP_SECONDS), flush=not self._failed)
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until all rows that the source has now are processed."""
        while True:
            current = self._query
            try:
                current.processAllAvailable()
                self._driver.drain()
                return
            except Exception as error:
                if not self._supervisor.settle(current):
                    raise self._own(error) from (self._driver.outcome.failure or error)

    def exception(self) -> TetherError | None:
        """Why the query ended, if it ended with an error."""
        if self._driver.outcome.stopping:
            return None
        current = self._query
        error = current.exception()
        if error is None and not current.isActive:
            error = self._driver.outcome.failure  # a twin's error, which Spark does not know of
        return None if error is None or self._supervisor.goes_on(current) else self._own(error)

    def stop(self) -> None:
        """Stop the query: make durable what is not, remove arenas, release the backup directory."""
        # Asked first: the epoch that the stop interrupts fails too, which is not an error of the query.
        failed = self._failed
        if not failed:
            self._driver.outcome.begin_stop()
        deadline = Deadline(STOP_SECONDS)
        self._driver.stop_twin(deadline)
        with contextlib.suppress(Exception):  # a query that failed has failed; exception() tells
            self._supervisor.stop(deadline)
        self._close(deadline, flush=not failed)

    # ---- what only Tether can tell -------------------------------------------------------------

    def bound(self, operator: str | None = None) -> Bound:
        """How wrong the answer can be: now, already spent, still left.

        Args:
            operator: One operator of several: how wrong its state can be, through its own losses and
                those of the operators before it. Without it, the one of them that can be most wrong.
        """
        return self._driver.bound(operator)

    def explain(self) -> str:
        """How the budget becomes the threshold of each slot, and how errors spread between operators."""
        return "\n".join(explain_query(self._driver.query))

    def story(self) -> list[Event]:
        """Every backup, loss, recovery and rollback so far, oldest first, with its cause."""
        return self._driver.story.events()

    def slots(self) -> list[dict[str, Any]]:
        """The newest report of each slot: divergence, threshold, rows, bytes, executor."""
        return [report for ledger in self._driver.ledgers() for report in ledger.reports()]

    def copies(self) -> list[dict[str, Any]]:
        """The places of slots with copies: which one speaks, and how far each copy is behind.

        One entry for each place where such a slot runs: ``operator``, ``slot``, ``executor``, ``lag``
        in epochs, and whether it ``speaks``. Empty without ``PartiallyActive``.
        """
        return [seat._asdict() for seat in self._driver.copies()]

    def topology(
        self,
        *,
        correlated: Sequence[str] = (),
        partitionings: Mapping[tuple[str, str], Partitioning] | None = None,
        folding: Sequence[str] = (),
    ) -> Topology:
        """What a planner of copies sees of the query, with the rates that its slots have reported.

        They are those of all recent epochs, as many as there are progress reports of.

        Args:
            correlated: As for ``Stream.topology``.
            partitionings: As for ``Stream.topology``.
            folding: Operators whose rows out are sums over many rows in: see
                ``tether.planning.measured_rates``.

        Raises:
            BadValueError: No epoch has been run yet.
        """
        told = [progress["tether"] for progress in self.recentProgress if progress["tether"]]
        # The report of an epoch without rows repeats what the last one said.
        every = {(x["operator"], x["slot"], x["epoch"]): x for one in told for x in one["slots"]}
        flow = self._driver.query.flow
        rates = measured_rates(graph_of_flow(flow), every.values(), folding=folding)
        return topology_of_flow(flow, rates, correlated=correlated, partitionings=partitionings)

    @property
    def feed(self) -> Feed:
        """Events, figures of every epoch and all slots: what the live page and the metrics show."""
        return self._driver.feed.feed

    def rescale(self, operator: str, slots: int) -> None:
        """Give an operator another number of slots, between two epochs, while the query runs.

        Its state is split and merged by key: nothing is lost, and what was lost before stays in the
        account. The number holds at later starts too, until the program says another one.

        Args:
            operator: Its name.
            slots: The new number.

        Raises:
            ChangedProgramError: Its state cannot be divided by key.
            QueryRefusedError: It cannot be done under this policy, or not now.
        """
        self._driver.rescale(operator, slots)

    def snapshot(self) -> None:
        """Begin a snapshot with the next epoch, whatever the policy's interval says.

        Raises:
            BadValueError: The query's policy takes no snapshots.
        """
        self._driver.snapshot()

    def serve_page(self, **options: Any) -> Page:
        """Serve the live page, as ``tether.ui.serve`` does; it ends with the query."""
        from tether.ui import serve  # noqa: PLC0415 - needs an extra

        self._page = serve(**options)
        return self._page

    def plot(self) -> Any:
        """Divergence, backups and failures over time, as a matplotlib figure (extra ``plots``)."""
        from tether.observe.plotting import plot  # noqa: PLC0415 - needs an extra

        return plot(self.feed)

    def _repr_html_(self) -> str:
        """A card with the bound, for notebooks."""
        return card(self.feed)

    def table(self, name: str, operator: str | None = None) -> DataFrame:
        """A table of an operator's state as it is now: read by every action, in the slots' place.

        Args:
            name: Name that the operator's ``setup`` gave to the table.
            operator: Name of the operator, where the query has several.
        """
        return self._driver.read_table(name, operator)

    def healing(self) -> dict[str, Any] | None:
        """What is missing since a loss, and the progress of the twin; None for an exact query.

        ``since_epoch``: rows are tentative from it on; ``since``: Unix seconds; ``epochs_behind`` and
        ``seconds_left``: what the twin has before it, by its pace so far; ``tentative_epochs``,
        ``tentative_rows`` and ``oldest_tentative_seconds``: what was given and is not corrected yet;
        ``fidelity``. ``tether inspect`` tells the same of the backup directory.
        """
        return self._driver.healing()

    def heal(self) -> bool:
        """Read again in the background what was lost; see ``Approximate(heal=…)``.

        This happens automatically after every loss, and this method tries again after a failure. With
        ``heal_on="demand"`` it happens only when this method is called.

        Returns:
            Whether there is anything to heal.
        """
        return self._driver.heal()

    def totals(self) -> dict[str, int]:
        """Rows, backups and their bytes, losses and rollbacks since the start of this run."""
        return self._driver.totals()

    # ---- the end -------------------------------------------------------------------------------

    def _await(self, timeout: float | None) -> bool | None:
        # In slices, for a wait inside the JVM cannot be interrupted by Ctrl-C.
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            current = self._query
            try:
                ended = current.awaitTermination(max(0.01, min(1.0, deadline - time.monotonic())))
            except Exception:
                if not self._supervisor.settle(current):
                    raise
                continue
            if ended and not self._supervisor.settle(current):
                # The twin of a stream that has ended still has to take over.
                while not self._driver.await_whole(max(0.0, min(1.0, deadline - time.monotonic()))):
                    if time.monotonic() >= deadline:
                        return False
                return None if timeout is None else True
            if time.monotonic() >= deadline:
                return False

    @property
    def _failed(self) -> bool:
        """Whether the query has ended, or is about to, with an error of its own."""
        if self._driver.outcome.stopping:
            return False
        return self._driver.outcome.failure is not None or self.exception() is not None

    def _own(self, error: BaseException) -> TetherError:
        return tether_error(self._driver.outcome.failure or error)

    def _close(self, deadline: Deadline, *, flush: bool) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            try:
                self._driver.end(deadline, flush=flush)
            finally:
                release(self._stores)
                if self._page is not None:
                    self._page.stop()
                if self._throwaway_checkpoint is not None:
                    shutil.rmtree(self._throwaway_checkpoint, ignore_errors=True)
