"""What main does after a loss: it continues with the slots that are left, or reports that it cannot.

How its twin takes over then is carried out by :mod:`tether.spark.running.taking_over`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tether.core.errors import TetherError
from tether.core.ids import Epoch, epoch_after
from tether.engine.query.following import topology_now
from tether.engine.query.going_on import go_on_without, snapshot_before, who_is_there
from tether.engine.query.room import lacking_room
from tether.engine.recovery.lost import is_loss, what_was_lost
from tether.planning.missing import fidelity_without
from tether.protocols import take_over as to
from tether.protocols.take_over_steps import resumed
from tether.spark.changes.columns import Mark
from tether.spark.changes.outlet import bound_outlet
from tether.spark.logs.twin_checkpoint import cut_epochs
from tether.spark.running.taking_over import Main, TakingOver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from tether.engine.deadline import Deadline
    from tether.engine.ports import Statuses
    from tether.engine.query.aside import Missing
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.planning.topology import Topology
    from tether.spark.graph.flow import Node
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.tasks.cluster import SparkCluster
    from tether.spark.tasks.jobs import LaneGraph

TRIES = 5
"""Number of attempts at an epoch of main while slots keep being lost."""


class Meanwhile:
    """What a query does between a loss and the take-over of its twin.

    Args:
        query: The query.
        checkpoint: Spark's checkpoint directory.
        story: The query's account of itself.
        how: What lost slots do until the take-over. None: only a take-over of an earlier driver is
            finished, and after the next loss the query goes back as a whole.
        strategy: How main and twin share the cluster.
        swap: Called with a twin's plan and run when they become the query's.
        fail: Called with an error that ends the query.
        heals: Where the query is within its bound after a loss: when a twin starts to heal it.
    """

    def __init__(
        self,
        query: PreparedQuery,
        checkpoint: str,
        story: Story,
        *,
        how: Missing | None,
        strategy: to.Strategy,
        swap: Callable[[LanePlan, Runner[SparkCluster]], None],
        fail: Callable[[BaseException], None],
        heals: Literal["at once", "on demand"] | None = None,
    ) -> None:
        self._story, self._heals = story, heals is not None
        self._asked = self._by_itself = heals == "at once"
        self._how: Missing = how or "stale"
        self._enabled = how is not None
        self._over = TakingOver(
            query,
            checkpoint,
            story,
            protocol=to.TakeOver(strategy=strategy, tentative=not heals),
            main_mark=self.main_mark,
            swap=swap,
            fail=fail,
        )
        self._changed, self._gate = self._over.changed, self._over.gate
        self._topology: Topology | None = None
        """The topology with the rates of the last epoch before the loss, if copies were planned by
        rates."""
        self._no_twin = False
        """Whether a twin to heal the query could not be started."""

    @property
    def _main(self) -> Runner[SparkCluster] | None:
        main = self._over.main
        return None if main is None else main.runner

    @property
    def _protocol(self) -> to.TakeOver:
        return self._over.state

    # ---- what others ask -------------------------------------------------------------------------

    @property
    def protocol(self) -> to.TakeOver:
        """The state of the take-over."""
        return self._protocol

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, as in an ordinary query."""
        return self._over.whole

    @property
    def tentative_since(self) -> Epoch | None:
        """First epoch whose rows are tentative, if any are."""
        state = self._protocol
        if state.note is None or state.kind(state.note.since) == "stable":
            return None
        return state.note.since

    @property
    def unfinished(self) -> bool:
        """Whether an earlier driver has left a take-over unfinished, or what is to be cleared away."""
        return self._over.note.read() is not None or self._over.twins.left

    def told(self) -> dict[str, Any] | None:
        """The part of progress reports about it; None for an ordinary query."""
        state = self._over.settled  # a twin that is about to take over has not done so yet
        if state.phase == "whole" or state.note is None:
            return None
        told = self._over.outstanding.told(state, state.note, self._over.twins.epochs)
        return {**told, "fidelity": self._fidelity()}

    def await_whole(self, timeout: float | None = None) -> bool:
        """Wait until nothing is missing any more; False if that takes longer.

        Raises:
            BaseException: It never will.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.whole or self._over.is_ending(), timeout)
            if self._over.failure is not None:
                raise self._over.failure
            return self.whole or self._over.stopped

    # ---- main ------------------------------------------------------------------------------------

    def sinks_of(self, graph: LaneGraph) -> LaneGraph:
        """The lane, with sinks that mark main's rows."""
        sinks = [(node, bound_outlet(sink, self.main_mark)) for node, sink in graph.sinks]
        return replace(graph, sinks=sinks)

    def open(
        self, lane: tuple[LaneGraph, LanePlan], runner: Runner[SparkCluster], epoch: Epoch
    ) -> None:
        """Main is about to run its first epoch: continue with what an earlier driver left."""
        over = self._over
        with self._changed:
            over.twins.clean_arenas(runner)
            complete = snapshot_before(runner, epoch)
            strategy, note = over.state.strategy, over.note.read()
            state, asked = resumed(note, complete, epoch, strategy=strategy)
            state = msgspec.structs.replace(state, tentative=not self._heals)
            over.open(Main(*lane, runner), state)
            if note is not None and state.phase != "over":
                over.cut_again(cut_epochs(over.log, map(Epoch, range(note.snapshot + 1, epoch))))
                runner.books.aside.go_on_without((), self._how)
                self._begin(note.since, "the driver was restarted")
            for one in asked:
                over.obey(one)

    def run(self, given: Mapping[Node, DataFrame], epoch: Epoch) -> None:
        """Run an epoch of main, with what is missing if anything is."""
        for attempt in range(TRIES):
            self._gate.enter()
            try:
                self._over.running.runner.run(given, epoch)
                break
            except BaseException as error:
                goes_on = is_loss(error) and attempt < TRIES - 1
                goes_on = goes_on and self._go_on(epoch, error)
                self._gate.leave()
                if not goes_on:
                    raise
        with (
            self._changed
        ):  # at once: main must not be seen between two epochs before this is reported
            if not self.whole:
                self._over.add_cut(epoch)
                if self._protocol.kind(epoch) == "tentative":
                    self._over.outstanding.give(epoch)
            self._over.main_ended(epoch)
            if self._heals and self.whole and self._asked:
                self._asked = self._by_itself
                self._heal(epoch_after(epoch))
            self._gate.leave()

    def _go_on(self, epoch: Epoch, loss: BaseException) -> bool:
        """Continue without lost slots of main; False if it is not possible: the query must go back."""
        main, why = self._over.running.runner, what_was_lost(loss)
        with self._changed:
            snapshot = snapshot_before(main, epoch)
            if self.whole and not self._enabled:
                return False
            there = who_is_there(main, epoch, loss)
            if self.whole:
                self._topology = topology_now(main)
            if self.whole and not self._can_start(there, snapshot, epoch):
                return False
            lost = go_on_without(main, there, epoch, why, self._how)
            if self.whole:
                self._begin(epoch, why, slots=len(lost), snapshot=snapshot)
            self._over.tell(to.Lost(epoch=epoch, snapshot=snapshot))
        return True

    def heal_now(self) -> bool:
        """Start a twin for what was lost, if anything was; False if there is nothing to heal."""
        with self._changed:
            if not self.whole:
                return True
            self._no_twin = False
            self._over.twins.try_again()
            if not self._gate.in_epoch and self._main is not None:
                self._heal(epoch_after(self._protocol.main))
                return not self.whole
            lossy = self._lossy()
            self._asked |= lossy  # at the end of this epoch
            return lossy

    def _lossy(self) -> bool:
        main = self._main
        return main is not None and any(one.lossy for one in main.books.ledgers.values())

    def _heal(self, epoch: Epoch) -> None:
        """Something may have been lost before this epoch: read it again."""
        main = self._main
        if main is None or self._no_twin or self._over.twins.hopeless or not self._lossy():
            return
        snapshot = snapshot_before(main, epoch)
        if not self._can_start(who_is_there(main, epoch), snapshot, epoch):
            self._no_twin = True  # it has been reported; the bound covers the loss permanently
            return
        self._begin(epoch, "slots have lost what the bound covers", snapshot=snapshot)
        self._over.tell(to.Lost(epoch=epoch, snapshot=snapshot))

    def _can_start(self, there: Statuses, snapshot: Epoch, epoch: Epoch) -> bool:
        """Whether a twin can read the epochs since the snapshot, and has room; it is told if not."""
        why = lacking_room(there.values())
        try:
            self._over.cut_again(cut_epochs(self._over.log, map(Epoch, range(snapshot + 1, epoch))))
        except TetherError as error:
            why = f"{error.what} {error.why}"
        if why:
            self._story.add("no-twin", why, epoch)
        return not why

    def _begin(self, epoch: Epoch, why: str, **detail: object) -> None:
        self._over.outstanding.begin(_usual_rows(self._main))
        self._over.twins.forget_failures()
        if self._heals:
            self._story.add("healing", why, epoch, **detail)
        else:
            self._story.add("tentative", why, epoch, meanwhile=self._how, **detail)

    def main_mark(self, epoch: Epoch) -> Mark:
        """The kind of main's rows of an epoch."""
        if self._protocol.kind(epoch) == "stable":
            return Mark("stable", epoch)
        return Mark("tentative", epoch, self._fidelity())

    def _fidelity(self) -> float:
        main = self._main
        if main is None or self._protocol.kind(epoch_after(self._protocol.main)) == "stable":
            return 1.0
        missing = main.books.aside.missing
        return fidelity_without(main.plan.settings.graph, missing, self._topology)

    def stop(self, deadline: Deadline) -> None:
        """The query is being stopped: let nobody wait, and end the twin. The note stays."""
        self._over.stop(deadline)


def _usual_rows(main: Runner[SparkCluster] | None) -> int:
    """About how many rows the newest epoch gave, at most: those of all operators."""
    ledgers = () if main is None else main.books.ledgers.values()
    return sum(status.rows_out for ledger in ledgers for status in ledger.newest())
