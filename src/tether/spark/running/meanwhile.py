"""Main and its twin after a loss: carries out the protocol of :mod:`tether.protocols.take_over`.

Main's thread comes here with every epoch, the twin's with every epoch of its own. What the protocol
asks for is done at once, by whichever thread told it the news, so nothing overtakes anything.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tether.chaos.faults import reach
from tether.core.errors import TetherError
from tether.core.ids import NEVER, Epoch, epoch_after, epoch_before
from tether.engine.query.room import lacking_room
from tether.engine.query.twin import record_twin, save_twin
from tether.engine.recovery.lost import is_loss, what_was_lost
from tether.protocols import take_over as to
from tether.spark.changes.columns import Mark
from tether.spark.changes.outlet import bound_outlet
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.logs.twin_checkpoint import CutEpoch, cut_epochs
from tether.spark.running.fidelity import fidelity_without
from tether.spark.running.gate import Gate
from tether.spark.running.outstanding import Outstanding
from tether.spark.running.remains import Arenas, arenas_file, note_file
from tether.spark.running.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from tether.engine.ports import Statuses
    from tether.engine.query.aside import Missing
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.spark.graph.flow import Node
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.tasks.cluster import SparkCluster
    from tether.spark.tasks.jobs import LaneGraph

TRIES = 5
"""How often an epoch of main is tried while slots keep being lost."""
TWINS_THAT_FAIL = 3
"""So many twins in a row may fail for other reasons than a loss, without coming further."""
SHARE = 2
"""Under ``process``, the twin runs an epoch at the latest when main has run so many."""


class Meanwhile:
    """What a query does between a loss and the take-over of its twin.

    Args:
        query: The query.
        checkpoint: Spark's checkpoint directory.
        story: The query's account of itself.
        how: What lost slots do meanwhile; None: after the next loss the query goes back as a whole,
            and here is only finished what an earlier driver began.
        strategy: How main and twin share the cluster.
        swap: Called with a twin's plan and run when they become the query's.
        fail: Called with an error that ends the query.
        heals: Whether the query is within its bound after a loss, and the twin is there to heal it.
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
        heals: bool = False,
    ) -> None:
        self._query, self._checkpoint, self._story = query, checkpoint, story
        self._how: Missing = how or "stale"
        self._enabled, self._swap, self._fail = how is not None, swap, fail
        self._protocol = to.TakeOver(strategy=strategy, tentative=not heals)
        self._note = note_file(checkpoint)
        self._arenas = arenas_file(checkpoint)
        self._log = SparkCheckpoint(checkpoint)
        self._changed = threading.Condition()
        self._gate = Gate(self._changed, self._log.committed, self._is_over)
        self._main: Runner[SparkCluster] | None = None
        self._lane: tuple[LaneGraph, LanePlan] | None = None
        self._outstanding = Outstanding(sink for _, sink in query.sinks)
        self._stopped = False
        self._failure: BaseException | None = None
        self._twin: Twin | None = None
        self._threads: list[threading.Thread] = []
        self._cuts: dict[Epoch, CutEpoch] = {}
        self._failed_twins, self._farthest = 0, -1
        self._ran_since_twin = 0
        self._saved: Statuses = {}
        self._heals, self._no_twin = heals, False

    def _is_over(self) -> bool:
        return self._stopped or self._failure is not None

    # ---- what others ask -------------------------------------------------------------------------

    @property
    def protocol(self) -> to.TakeOver:
        """Where it stands now."""
        return self._protocol

    @property
    def whole(self) -> bool:
        """Whether nothing is missing: an ordinary query."""
        return self._protocol.phase == "whole"

    @property
    def tentative_since(self) -> Epoch | None:
        """First epoch whose rows are tentative, if any are."""
        state = self._protocol
        if state.note is None or state.kind(state.note.since) == "stable":
            return None
        return state.note.since

    @property
    def unfinished(self) -> bool:
        """Whether an earlier driver has left a take-over unfinished."""
        return self._note.read() is not None

    def told(self) -> dict[str, Any] | None:
        """What progress reports say of it; None of an ordinary query."""
        state, twin = self._protocol, self._twin
        if state.phase == "whole" or state.note is None:
            return None
        told = self._outstanding.told(state, 0 if twin is None else twin.epochs)
        return {**told, "fidelity": self._fidelity()}

    def await_whole(self, timeout: float | None = None) -> bool:
        """Wait until nothing is missing any more; False if that takes longer.

        Raises:
            BaseException: It never will.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.whole or self._stopped or self._failure is not None, timeout
            )
            if self._failure is not None:
                raise self._failure
            return self.whole or self._stopped

    # ---- main ------------------------------------------------------------------------------------

    def sinks_of(self, graph: LaneGraph) -> LaneGraph:
        """The lane with sinks that know what main's rows are."""
        sinks = [(node, bound_outlet(sink, self.main_mark)) for node, sink in graph.sinks]
        return replace(graph, sinks=sinks)

    def open(
        self, lane: tuple[LaneGraph, LanePlan], runner: Runner[SparkCluster], epoch: Epoch
    ) -> None:
        """Main is about to run its first epoch: continue with what an earlier driver left."""
        with self._changed:
            self._lane, self._main = lane, runner
            self._clean_arenas(runner)
            newest = runner.books.newest_snapshot(epoch)
            complete = epoch_before(runner.books.first_epoch) if newest is None else newest.epoch
            strategy, note = self._protocol.strategy, self._note.read()
            self._protocol, asked = to.resumed(note, complete, epoch, strategy=strategy)
            self._protocol = msgspec.structs.replace(self._protocol, tentative=not self._heals)
            if note is not None and self._protocol.phase != "over":
                self._cuts = cut_epochs(self._log, map(Epoch, range(note.snapshot + 1, epoch)))
                runner.books.aside.go_on_without((), self._how)
                self._begin(note.since, "the driver was restarted")
            for one in asked:
                self._obey(one)

    def run(self, given: Mapping[Node, DataFrame], epoch: Epoch) -> None:
        """Run an epoch of main, with what is missing if anything is."""
        for attempt in range(TRIES):
            self._gate.enter()
            assert self._main is not None
            try:
                self._main.run(given, epoch)
                break
            except BaseException as error:
                goes_on = is_loss(error) and attempt < TRIES - 1
                goes_on = goes_on and self._go_on(epoch, what_was_lost(error))
                self._gate.leave()
                if not goes_on:
                    raise
        with self._changed:  # at once: nobody may see main between two epochs before it has told
            if not self.whole:
                self._cuts |= cut_epochs(self._log, [epoch])
                if self._protocol.kind(epoch) == "tentative":
                    self._outstanding.give(epoch)
            self._ran_since_twin += 1
            self._tell(to.MainEnded(epoch=epoch))
            if self._heals and self.whole:
                self._heal(epoch_after(epoch))
            self._gate.leave()

    def _go_on(self, epoch: Epoch, why: str) -> bool:
        """Slots of main are lost: go on without them. False: that cannot be, go back instead."""
        main = self._main
        assert main is not None
        with self._changed:
            newest = main.books.newest_snapshot(epoch)
            snapshot = epoch_before(main.books.first_epoch) if newest is None else newest.epoch
            if self.whole and not self._enabled:
                return False
            there = self._probe(main, epoch)
            if self.whole and not self._can_start(there, snapshot, epoch):
                return False
            lost = frozenset(main.plan.settings.graph.slots) - there.keys()
            main.cluster.forget_reports()
            if main.books.keeper is not None:
                main.books.keeper.give_up(why, epoch)
            main.books.aside.go_on_without(lost, self._how)
            main.books.lineages.distrust_slots(lost)
            if self.whole:
                self._begin(epoch, why, slots=len(lost), snapshot=snapshot)
            self._tell(to.Lost(epoch=epoch, snapshot=snapshot))
        return True

    def heal_now(self) -> bool:
        """Start a twin for what was lost, if anything was; False if there is nothing to heal."""
        with self._changed:
            if not self.whole:
                return True
            if not self._gate.in_epoch and self._main is not None:
                self._no_twin = False
                self._heal(epoch_after(self._protocol.main))
                return not self.whole
            return self._lossy()

    def _lossy(self) -> bool:
        main = self._main
        return main is not None and any(one.lossy for one in main.books.ledgers.values())

    def _heal(self, epoch: Epoch) -> None:
        """Something may have been lost before this epoch: read it again."""
        main = self._main
        if main is None or self._no_twin or not self._lossy():
            return
        newest = main.books.newest_snapshot(epoch)
        snapshot = epoch_before(main.books.first_epoch) if newest is None else newest.epoch
        if not self._can_start(self._probe(main, epoch), snapshot, epoch):
            self._no_twin = True  # it was told; the bound covers the loss for good
            return
        self._begin(epoch, "slots have lost what the bound covers", snapshot=snapshot)
        self._tell(to.Lost(epoch=epoch, snapshot=snapshot))

    def _can_start(self, there: Statuses, snapshot: Epoch, epoch: Epoch) -> bool:
        """Whether a twin can read the epochs since the snapshot, and has room; it is told if not."""
        why = lacking_room(there.values())
        try:
            self._cuts = cut_epochs(self._log, map(Epoch, range(snapshot + 1, epoch)))
        except TetherError as error:
            why = f"{error.what} {error.why}"
        if why:
            self._story.add("no-twin", why, epoch)
        return not why

    def _begin(self, epoch: Epoch, why: str, **detail: object) -> None:
        self._outstanding.begin()
        self._failed_twins, self._farthest = 0, -1
        if self._heals:
            self._story.add("healing", why, epoch, **detail)
        else:
            self._story.add("tentative", why, epoch, meanwhile=self._how, **detail)

    def _probe(self, main: Runner[SparkCluster], epoch: Epoch) -> Statuses:
        """What slots that have their state as of the epoch before say; none if executors are dying."""
        try:
            return main.cluster.ask(main.orders, "probe", epoch_before(epoch))
        except Exception:
            return {}

    def main_mark(self, epoch: Epoch) -> Mark:
        """What main's rows of an epoch are."""
        if self._protocol.kind(epoch) == "stable":
            return Mark("stable", epoch)
        return Mark("tentative", epoch, self._fidelity())

    def _fidelity(self) -> float:
        main = self._main
        if main is None or self._protocol.kind(epoch_after(self._protocol.main)) == "stable":
            return 1.0
        return fidelity_without(main.plan.settings.graph, main.books.aside.missing)

    # ---- the twin: called by its own thread ------------------------------------------------------

    def cut(self, epoch: Epoch) -> CutEpoch | None:
        """How main cut an epoch; None where it has not ended it yet."""
        return self._cuts.get(epoch)

    def twin_mark(self, epoch: Epoch) -> Mark | None:
        """What the twin's rows of an epoch are; None where it gives none."""
        if not self._protocol.speaks(epoch):
            return None
        return Mark("stable", max(epoch, self._protocol.main))

    def idle(self) -> None:
        """Wait a moment: there is nothing to run."""
        with self._changed:
            self._changed.wait(0.05)

    def before_twin_epoch(self, twin: Twin) -> None:
        """Wait for the twin's turn to use the cluster, and for main to be ahead of it."""

        def ready() -> bool:
            state = self._protocol
            if twin.ended or self._stopped:
                return True
            if state.twin is None or state.twin >= state.main:
                return False
            patient = state.strategy == "process" and not self._gate.held
            return not (patient and self._gate.in_epoch and self._ran_since_twin < SHARE)

        with self._changed:
            self._changed.wait_for(ready)
            self._ran_since_twin = 0

    def twin_ended(self, twin: Twin, epoch: Epoch) -> None:
        """The twin has come to the end of an epoch; take over if it has caught up."""
        with self._changed:
            if twin.ended:
                return
            if epoch > self._farthest:
                self._farthest, self._failed_twins = epoch, 0
            self._tell(to.TwinEnded(epoch=epoch, twin=twin.number))
            if self._protocol.phase == "holding" and self._protocol.stopped is None:
                self._changed.wait_for(
                    lambda: self._gate.stands(self._protocol.main) or twin.ended or self._stopped
                )
                if not twin.ended and not self._stopped:
                    self._tell(to.MainHeld(epoch=self._protocol.main))

    # ---- the protocol ----------------------------------------------------------------------------

    def _tell(self, event: to.Event) -> None:
        with self._changed:
            self._protocol, asked = to.step(self._protocol, event)
            for one in asked:
                self._obey(one)
            self._changed.notify_all()

    def _obey(self, one: to.Instruction) -> None:
        faults, epoch = self._query.faults, self._protocol.main
        match one:
            case to.WriteNote(note=note):
                self._note.write(note)
                self._outstanding.settle(note.through)
                reach(faults, "after-note", -1, epoch)
                self._tell(to.Noted(note=note))
            case to.StartTwin(twin=number, snapshot=snapshot):
                self._start_twin(number, snapshot)
            case to.EndTwin():
                self._end_twin()
            case to.HoldMain():
                self._gate.held = True
            case to.SaveTwin(epoch=at):
                assert self._twin is not None
                assert self._twin.runner is not None
                self._saved = save_twin(self._twin.runner, at)
                reach(faults, "after-twin-saved", -1, epoch)
                self._tell(to.TwinSaved(epoch=at, twin=one.twin))
            case to.RecordTakeOver(epoch=at):
                assert self._twin is not None
                assert self._twin.runner is not None
                self._record(self._twin.runner, at)
                reach(faults, "after-take-over", -1, epoch)
                self._tell(to.Recorded(epoch=at))
            case to.SwapIn(epoch=at):
                self._swap_in(at)
            case to.RemoveNote():
                self._note.remove()
                self._tell(to.NoteRemoved())
            case to.ReleaseMain():
                self._gate.held = False
        self._changed.notify_all()

    def _record(self, runner: Runner[SparkCluster], epoch: Epoch) -> None:
        try:
            record_twin(runner, epoch, self._saved)
        except Exception as error:  # whether it is durable, only the next start can tell
            self._give_up(error)
            raise

    def _start_twin(self, number: int, snapshot: Epoch) -> None:
        assert self._main is not None
        assert self._lane is not None
        graph, plan = self._lane
        twin = self._twin = Twin(
            number=number,
            snapshot=snapshot,
            query=self._query,
            lane=(replace(graph, sinks=list(self._query.sinks)), plan),
            main=self._main,
            lead=self,
            story=self._story,
            checkpoint=self._checkpoint,
        )
        known = self._arenas.read() or Arenas()
        self._arenas.write(Arenas(known.current, (*known.twins, twin.arena)))
        self._outstanding.begin_twin()
        self._story.add("twin", "it starts from a snapshot", snapshot, number=number)
        # Not one of Spark's threads, which would inherit the job group of main's stream.
        thread = threading.Thread(
            target=self._follow, args=(twin,), name="tether-twin", daemon=True
        )
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _follow(self, twin: Twin) -> None:
        try:
            twin.follow()
        except Exception as error:
            with self._changed:
                if twin.ended or self._stopped or self._failure is not None:
                    return
                self._failed_twins += not is_loss(error)
                if self._failed_twins >= TWINS_THAT_FAIL:
                    self._give_up(error)
                    return
                told = what_was_lost(error) if is_loss(error) else str(error).split("\n")[0]
                self._story.add("twin-lost", told, self._protocol.twin or NEVER, number=twin.number)
                self._tell(to.TwinLost(twin=twin.number))

    def _end_twin(self) -> None:
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.end()
            twin.remove()

    def _swap_in(self, epoch: Epoch) -> None:
        twin, old = self._twin, self._main
        assert twin is not None
        assert old is not None
        self._main = twin.become_main(old.cluster.session)
        self._arenas.write(Arenas(twin.arena, (old.books.aside.arena,)))
        self._lane = (twin.graph, twin.plan)
        self._swap(twin.plan, self._main)
        self._story.add(
            "taken-over",
            "the twin has caught up",
            epoch,
            number=twin.number,
            epochs_again=twin.epochs,
            seconds=self._outstanding.seconds,
        )
        self._twin, self._cuts = None, {}
        thread = threading.Thread(target=self._clear, args=(twin, old), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _clear(self, twin: Twin, old: Runner[SparkCluster]) -> None:
        """Remove what is left of the old slots, and the twin's stream."""
        twin.end()
        old.clean()
        old.release()
        twin.remove_checkpoint()

    def _clean_arenas(self, runner: Runner[SparkCluster]) -> None:
        """Find the state that an earlier take-over left; remove that of twins that never came to it."""
        known = self._arenas.read()
        if known is None:
            return
        for name in known.twins:
            if name != known.current:
                runner.books.aside.arena = name
                runner.clean()
        runner.books.aside.arena = known.current
        self._arenas.write(Arenas(known.current))

    def _give_up(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._fail(error)

    # ---- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """The query is being stopped: let nobody wait, and end the twin. The note stays."""
        with self._changed:
            self._stopped = True
            twin, self._twin = self._twin, None
            self._changed.notify_all()
        if twin is not None:
            twin.end()
            twin.remove()
        for thread in self._threads:
            thread.join(30)
