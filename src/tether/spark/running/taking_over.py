"""Carries out the protocol of :mod:`tether.protocols.take_over`: the note, the record, the swap.

Main's thread comes here with every epoch, the twin's with every epoch of its own. Instructions of the
protocol are carried out at once, by the thread that reported the event, so they stay in order.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, assert_never

from tether.chaos.faults import reach
from tether.core.ids import Epoch
from tether.engine.query.twin import record_twin, save_twin
from tether.protocols import take_over as to
from tether.protocols.take_over_steps import step
from tether.spark.changes.columns import Mark
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.logs.twin_checkpoint import cut_epochs
from tether.spark.running.gate import Gate
from tether.spark.running.outstanding import Outstanding
from tether.spark.running.remains import note_file
from tether.spark.running.twins import Twins

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.chaos.faults import TakeOverPoint
    from tether.engine.deadline import Deadline
    from tether.engine.ports import Statuses
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.logs.twin_checkpoint import CutEpoch
    from tether.spark.running.twin import Twin
    from tether.spark.tasks.cluster import SparkCluster
    from tether.spark.tasks.jobs import LaneGraph

FIRST_SECONDS = 20.0
"""Longest time, in seconds, that a twin waits for main's first answer after a loss."""
REPLACED_SECONDS = 10.0
"""Longest time, in seconds, that a twin waits for the replacement of executors that died."""
COLD_SECONDS = 3.0
"""Longest time, in seconds, that a twin then waits for main's first epoch on the new ones."""
SHARE = 2
"""Under ``process``, the twin runs an epoch at the latest after this many epochs of main."""


class Main(NamedTuple):
    """The run that is the query."""

    graph: LaneGraph
    plan: LanePlan
    runner: Runner[SparkCluster]

    @property
    def cluster(self) -> SparkCluster:
        """Where its slots run."""
        return self.runner.cluster


class TakingOver:
    """The state of main and its twin, with the steps that follow from it.

    Args:
        query: The query.
        checkpoint: Spark's checkpoint directory.
        story: The query's account of itself.
        protocol: The protocol's state to begin with.
        main_mark: What main's rows of an epoch are.
        swap: Called with a twin's plan and run when they become the query's.
        fail: Called with an error that ends the query.
    """

    def __init__(
        self,
        query: PreparedQuery,
        checkpoint: str,
        story: Story,
        *,
        protocol: to.TakeOver,
        main_mark: Callable[[Epoch], Mark],
        swap: Callable[[LanePlan, Runner[SparkCluster]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._query, self._story = query, story
        self._state = protocol
        self.main_mark, self._swap, self._fail = main_mark, swap, fail
        self.note = note_file(checkpoint)
        self.log = SparkCheckpoint(checkpoint)
        self.changed = threading.Condition()
        """Notified of every change; its lock protects all fields here."""
        self.gate = Gate(self.changed, self.log.committed, self.is_ending)
        self.outstanding = Outstanding(sink for _, sink in query.sinks)
        self._main: Main | None = None
        self._cuts: dict[Epoch, CutEpoch] = {}
        """The cuts of main's epochs that a twin runs."""
        self._ran_since_twin = 0
        """Epochs of main since the twin last began one."""
        self.failure: BaseException | None = None
        self._stopped = False
        self._before: to.TakeOver | None = None
        """The protocol's state before the step that is being carried out."""
        self._saved: Statuses = {}
        self.twins = Twins(self, query, checkpoint, story)

    @property
    def state(self) -> to.TakeOver:
        """The protocol's state."""
        return self._state

    @property
    def main(self) -> Main | None:
        """The run that is the query; None before its first epoch."""
        return self._main

    @property
    def running(self) -> Main:
        """The same, while an epoch runs or a twin follows."""
        assert self._main is not None
        return self._main

    def open(self, main: Main, state: to.TakeOver) -> None:
        """Main is about to run its first epoch; the protocol begins or resumes with this state."""
        self._main, self._state = main, state

    def cut_again(self, cuts: dict[Epoch, CutEpoch]) -> None:
        """These are the cuts of main's epochs since the snapshot that the next twin starts from."""
        self._cuts = cuts

    def add_cut(self, epoch: Epoch) -> None:
        """Main has finished another epoch that a twin must run."""
        self._cuts |= cut_epochs(self.log, [epoch])

    @property
    def stopped(self) -> bool:
        """Whether the query is being stopped."""
        return self._stopped

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, as in an ordinary query."""
        return self.state.phase == "whole"

    def is_ending(self) -> bool:
        """Whether all waiting must end."""
        return self._stopped or self.failure is not None

    # ---- the twin: called by its own thread ------------------------------------------------------

    def cut(self, epoch: Epoch) -> CutEpoch | None:
        """The cut of an epoch by main; None if main has not finished it yet."""
        return self._cuts.get(epoch)

    def twin_mark(self, epoch: Epoch) -> Mark | None:
        """What the twin's rows of an epoch are; None where it gives none."""
        if not self.state.speaks(epoch):
            return None
        return Mark("stable", max(epoch, self.state.main))

    def silent_through(self) -> Epoch:
        """The last epoch of main for which the twin's output is not needed."""
        state = self.state
        if state.tentative and state.note is not None:
            return min(state.note.through, state.main)
        return state.main

    def await_first_answer(self, twin: Twin) -> None:
        """Wait until main has finished the epoch in which the loss was found. Its reader waits for that.

        A twin that starts meanwhile would take a part of the cluster, and executors are missing.
        """

        def given() -> bool:
            note, nobody = self.state.note, twin.ended or self.is_ending() or self.gate.held
            # The output of an approximate query for that epoch is valid.
            return (
                nobody or note is None or not self.state.tentative or self.state.main >= note.since
            )

        with self.changed:
            self.changed.wait_for(given, FIRST_SECONDS)

    def await_executors(self, twin: Twin) -> None:
        """Let Spark replace executors that have died, before the twin's slots are placed.

        They would crowd those that are left: main would be slower meanwhile, and when the twin has taken
        over, one more loss could take all of its slots. A new executor loads classes in its first tasks,
        and main has some there at once: the twin does not slow those down as well.
        """
        assert self.main is not None

        def nobody_waits() -> bool:
            return twin.ended or self.is_ending() or self.gate.held

        cluster, deadline = self.main.cluster, time.monotonic() + REPLACED_SECONDS
        if not cluster.lacks_executors():
            return
        while cluster.lacks_executors() and time.monotonic() < deadline:
            with self.changed:
                if nobody_waits():
                    return
                self.changed.wait(0.1)
        with self.changed:
            warm = self.state.main + 1 + self.gate.in_epoch
            self.changed.wait_for(lambda: nobody_waits() or self.state.main >= warm, COLD_SECONDS)

    def idle(self) -> None:
        """Wait a moment: there is nothing to run."""
        with self.changed:
            self.changed.wait(0.05)

    def before_twin_epoch(self, twin: Twin) -> None:
        """Wait for the twin's turn to use the cluster, and for main to be ahead of it."""

        def ready() -> bool:
            state = self.state
            if twin.ended or self._stopped:
                return True
            if state.twin is None or state.twin >= state.main:
                return False
            patient = state.strategy == "process" and not self.gate.held
            return not (patient and self.gate.in_epoch and self._ran_since_twin < SHARE)

        with self.changed:
            self.changed.wait_for(ready)
            self._ran_since_twin = 0

    def twin_ended(self, twin: Twin, epoch: Epoch) -> None:
        """The twin has finished an epoch; take over if it has caught up."""
        with self.changed:
            if twin.ended:
                return
            self._reach("after-twin-epoch", epoch)
            self.twins.came_to(epoch)
            self.tell(to.TwinEnded(epoch=epoch, twin=twin.number))
            at_the_end = self.state.twin == self.state.main
            if self.state.phase == "holding" and self.state.stopped is None and at_the_end:
                self.changed.wait_for(
                    lambda: self.gate.stands(self.state.main) or twin.ended or self._stopped
                )
                if not twin.ended and not self._stopped:
                    self._reach("after-hold", self.state.main)
                    self.tell(to.MainHeld(epoch=self.state.main))

    # ---- main: called by its own thread ----------------------------------------------------------

    def main_ended(self, epoch: Epoch) -> None:
        """Main has finished an epoch."""
        with self.changed:
            self._ran_since_twin += 1
            self.tell(to.MainEnded(epoch=epoch))

    # ---- the protocol ----------------------------------------------------------------------------

    def tell(self, event: to.Event) -> None:
        """Pass an event to the protocol, and carry out its instructions."""
        with self.changed:
            outermost = self._before is None
            if outermost:
                self._before = self.state
            try:
                self._state, asked = step(self._state, event)
                for one in asked:
                    self.obey(one)
            finally:
                if outermost:
                    self._before = None
            self.changed.notify_all()

    @property
    def settled(self) -> to.TakeOver:
        """The protocol's state after all its instructions, for readers without the lock."""
        return self._before or self.state

    def obey(self, one: to.Instruction) -> None:
        """Carry out an instruction."""
        match one:
            case to.WriteNote(note=note):
                self.note.write(note)
                self.outstanding.settle(note.through)
                self._reach("after-note" if note.over is None else "after-announcing")
                self.tell(to.Noted(note=note))
            case to.StartTwin(twin=number, snapshot=snapshot):
                self._let_move(False)
                self.twins.start(number, snapshot)
            case to.EndTwin():
                self.twins.end()
                self._let_move(True)
            case to.HoldMain():
                self.gate.hold()
            case to.SaveTwin(epoch=at):
                self._saved = save_twin(self.twins.running, at)
                self._reach("after-twin-saved")
                self.tell(to.TwinSaved(epoch=at, twin=one.twin))
            case to.RecordTakeOver(epoch=at):
                self._take_over(at)
            case to.SwapIn(epoch=at):
                self._swap_in(at)
            case to.RemoveNote():
                self.note.remove()
                self._reach("after-note-removed")
                self.tell(to.NoteRemoved())
            case to.ReleaseMain():
                self.gate.release()
            case _:
                assert_never(one)
        self.changed.notify_all()

    def _let_move(self, allowed: bool) -> None:
        """Whether main's slots may be placed elsewhere."""
        if self._main is not None:
            self._main.runner.books.aside.follow(not allowed)

    def _reach(self, point: TakeOverPoint, epoch: Epoch | None = None) -> None:
        reach(self._query.faults, point, -1, self.state.main if epoch is None else epoch)

    def _take_over(self, epoch: Epoch) -> None:
        """Steps 8 and 9. What fails now ends the query: only the next start can tell what is durable."""
        try:
            record_twin(self.twins.running, epoch, self._saved)
            self._reach("after-take-over")
            self.tell(to.Recorded(epoch=epoch))
        except Exception as error:
            self.give_up(error)
            raise

    def _swap_in(self, epoch: Epoch) -> None:
        twin, old = self.twins.current, self.running.runner
        self._main = Main(twin.graph, twin.plan, twin.become_main(old.cluster.session))
        self._swap(twin.plan, self._main.runner)
        self._story.add(
            "taken-over",
            "the twin has caught up",
            epoch,
            number=twin.number,
            epochs_again=twin.epochs,
            seconds=self.outstanding.seconds,
        )
        self._cuts = {}
        self.twins.replace(old)

    # ---- the end ---------------------------------------------------------------------------------

    def give_up(self, error: BaseException) -> None:
        """The query has failed."""
        with self.changed:
            self.failure = error
            self.changed.notify_all()
        self._fail(error)

    def stop(self, deadline: Deadline) -> None:
        """The query is being stopped: end all waiting, and stop the twin. The note stays."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()
        self.twins.stop(deadline)
