"""A query that answers although an input is missing: stable epochs, and tentative ones ahead of them.

The offset of an epoch contains its kind (:mod:`tether.sources.sunion.offsets`). Stable epochs are the
query's: they are numbered among themselves, so that they are the same, and have the same numbers, in a
run in which nothing ever fails. Tentative ones run ahead of them (:mod:`tether.engine.query.ahead`), and
what they leave is dropped when stable epochs have come as far.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tether.chaos.faults import reach
from tether.core.ids import NEVER, Epoch
from tether.engine.query.ahead import AheadRun
from tether.sources.sunion.offsets import end_of
from tether.spark.changes.early import EarlyOutlet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.policies.policy import Availability
    from tether.sources.sunion.offsets import Offset
    from tether.spark.graph.flow import Node
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.tasks.cluster import SparkCluster
    from tether.spark.tasks.jobs import LaneGraph

TRIES = 2
"""Number of attempts at a tentative epoch, each from the query's own state."""


class AvailableRun:
    """Runs stable and tentative epochs of one query.

    Args:
        query: The query.
        policy: Its policy.
        checkpoint: Spark's checkpoint directory.
        story: The query's account of itself.
    """

    def __init__(
        self, query: PreparedQuery, policy: Availability, checkpoint: str, story: Story
    ) -> None:
        self._query, self._policy = query, policy
        self._checkpoint, self._story = checkpoint, story
        self._outlets = [(node, EarlyOutlet(sink, checkpoint)) for node, sink in query.sinks]
        self._ahead: AheadRun | None = None
        self._epoch = NEVER
        self._told: Offset | None = None
        self._spark_epochs: dict[Epoch, Epoch] = {}
        self._since: tuple[Epoch, float] | None = None
        self._clocks: set[str] = set()
        """Exchanges whose writers' clocks have been told to be ahead."""

    # ---- numbers of epochs -----------------------------------------------------------------------

    def number(self, epoch: Epoch) -> Epoch:
        """Number of a stable epoch among the stable ones; of a tentative one, that of the next."""
        told = end_of(self._checkpoint, epoch)
        return Epoch(told.given - (told.kind == "stable"))

    def spark_epoch(self, number: Epoch) -> Epoch | None:
        """Spark's number of a stable epoch that was run here."""
        return self._spark_epochs.get(number)

    # ---- epochs ----------------------------------------------------------------------------------

    def sinks_of(self, graph: LaneGraph) -> LaneGraph:
        """The query's lane, with sinks that know which rows its rows replace."""
        return replace(graph, sinks=self._sinks())

    def _sinks(self) -> list[tuple[Node, Any]]:
        def giving(outlet: EarlyOutlet) -> Any:
            def give(rows: DataFrame, number: int) -> None:
                del number  # a number among stable epochs; sinks and readers use Spark's numbers
                assert self._told is not None
                outlet.give(rows, self._epoch, self._told)

            return give

        return [(node, giving(outlet)) for node, outlet in self._outlets]

    def run(
        self, main: Runner[SparkCluster], given: Mapping[Node, DataFrame], epoch: Epoch
    ) -> None:
        """Run an epoch of either kind to the point where Spark may commit it."""
        before, told = self._told, end_of(self._checkpoint, epoch)
        self._told = told
        self._note(before, told, epoch)
        if self._epoch < 0 and epoch > 0:
            # A driver that was killed may have left copies behind.
            AheadRun(main, main.cluster.beside(()), in_place=False).end()
        self._epoch = epoch
        missing = told.manager.ahead > told.manager.stable
        if missing and self._since is None:
            self._begin(told)
        if told.kind == "tentative":
            self._run_ahead(main, given, told)
        else:
            self._run_stable(main, given, told)
        if not missing and self._since is not None:
            since, at = self._since
            self._since = None
            self._story.add(
                "corrected", "the input is back", epoch, since=since, seconds=time.time() - at
            )
        for _, outlet in self._outlets:
            outlet.settle(told)

    def _note(self, before: Offset | None, told: Offset, epoch: Epoch) -> None:
        """What the subscription tells of itself goes into the story."""
        for url, seconds in told.clocks.items():
            if url not in self._clocks:
                self._clocks.add(url)
                why = "rows of other inputs wait that much less for it"
                self._story.add("clock-ahead", why, epoch, exchange=url, seconds=seconds)
        if (
            before is not None
            and before.manager.phase == "stabilization"
            and told.manager.phase == "up-failure"
        ):
            self._story.add(
                "interrupted",
                "an input is missing again before all was corrected",
                epoch,
                inputs=sorted(told.manager.silent),
            )

    def _begin(self, told: Offset) -> None:
        self._since = (self._epoch, time.time())
        self._story.add(
            "tentative",
            "an input is missing",
            self._epoch,
            inputs=sorted(told.manager.silent),
            reconcile=self._policy.reconcile,
        )

    def _run_stable(
        self, main: Runner[SparkCluster], given: Mapping[Node, DataFrame], told: Offset
    ) -> None:
        ahead, whole = self._ahead, told.manager.ahead <= told.manager.stable
        if ahead is not None and ahead.in_place and not whole:
            # New buckets are still answered while late ones are corrected.
            if self._policy.stabilization == "suspend":
                self._drop()
            else:
                ahead.leave()
                reach(main.plan.settings.faults, "after-copy", -1, self._epoch)
        if self._since is not None:
            reach(main.plan.settings.faults, "before-undo", -1, self._epoch)
        number = Epoch(told.given - 1)
        main.run(given, number)
        self._spark_epochs = {number: self._epoch}
        if whole:
            self._drop()

    def _run_ahead(
        self, main: Runner[SparkCluster], given: Mapping[Node, DataFrame], told: Offset
    ) -> None:
        faults = main.plan.settings.faults
        for attempt in range(TRIES):
            try:
                ahead = self._ahead
                if ahead is None:
                    ahead = self._fork(main, told)
                ahead.run(given)
                reach(faults, "after-tentative", -1, self._epoch)
                return
            except Exception as error:
                # Its state was lost: it starts again from the query's own, without earlier tentative
                # rows.
                self._drop()
                if attempt == TRIES - 1:
                    raise
                told_ = str(error).split("\n", 1)[0]
                self._story.add("ahead-lost", told_, self._epoch)

    def _fork(self, main: Runner[SparkCluster], told: Offset) -> AheadRun:
        # In place only while the query itself is held; otherwise its next epoch would roll it back.
        in_place = self._policy.reconcile == "undo" and told.manager.phase == "up-failure"
        cluster = main.cluster.beside(self._sinks())
        self._ahead = AheadRun(main, cluster, in_place=in_place)
        return self._ahead

    def _drop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()

    # ---- what others ask -------------------------------------------------------------------------

    @property
    def tentative_since(self) -> Epoch | None:
        """First epoch whose rows are tentative and not corrected yet, if any are."""
        return None if self._since is None else self._since[0]

    @property
    def ahead_bytes(self) -> int:
        """Bytes of memory for tentative answers: copies of state, or undo journals."""
        return 0 if self._ahead is None else self._ahead.bytes

    def told(self) -> dict[str, Any] | None:
        """The part of progress reports about it; None where nothing is tentative."""
        told = self._told
        if told is None or self._since is None:
            return None
        manager = told.manager
        return {
            "phase": manager.phase,
            "since_epoch": self._since[0],
            "since": self._since[1],
            "missing_inputs": sorted(manager.silent),
            "stable_before": told.stable_before,
            "tentative_before": manager.ahead * told.bucket,
            "reconcile": self._policy.reconcile,
            "ahead_bytes": self.ahead_bytes,
            "clocks_ahead": told.clocks,
        }

    def stop(self) -> None:
        """The query ends: remove the copies of state."""
        self._drop()
