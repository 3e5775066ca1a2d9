"""A query, its twin and a reader in one process: the take-over on the engine's own slots and commits.

The host decides nothing: what it is told to do is :mod:`tether.protocols.take_over`, and slots,
snapshots and records are :mod:`tether.engine`, as on Spark. The caller chooses what happens next: main
or twin runs an epoch, an instruction is carried out, a slot loses its state, the driver dies. It may die
between any two instructions, and between an epoch's output and the host's commit of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from tether.backup.memory import MemoryStore
from tether.core.ids import NEVER, Epoch, each_slot, epoch_after, epoch_before
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.going_on import go_on_without, snapshot_before, who_is_there
from tether.engine.query.lane import LanePlan
from tether.engine.query.opening import open_lane
from tether.engine.query.twin import open_twin
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.heap import HeapHost
from tether.engine.slot.program import HeldStore
from tether.local.cluster import LocalCluster
from tether.local.take_over import LocalTakeOver
from tether.observe.story import QuietStory, Story
from tether.protocols import take_over as to
from tether.simulate.epoch_query import EpochRows, query_of
from tether.state.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.engine.query.aside import Missing
    from tether.engine.query.runner import Runner
    from tether.simulate.epoch_query import EpochScenario
    from tether.state.segment import Array


@dataclass
class Reader:
    """The answers given so far, by epoch: stable ones, each once, and tentative ones."""

    truth: list[Array] = field(default_factory=list)
    """The right answers, by epoch."""
    stable: set[Epoch] = field(default_factory=set)
    tentative: set[Epoch] = field(default_factory=set)
    newest: Epoch = NEVER
    """The epoch that was given last."""
    in_doubt: Epoch | None = None
    """The same when the driver died: if it was not noted before, it may be given again."""
    wrong: int = 0
    """Number of tentative answers that were not right."""
    violations: list[str] = field(default_factory=list)

    def give(self, epoch: Epoch, answer: Array | None) -> None:
        """A stable answer: in order, once, and right."""
        if epoch in self.stable and epoch != self.in_doubt:
            self.violations.append(f"the stable answer of epoch {epoch} came twice")
        if epoch > 0 and epoch_before(epoch) not in self.stable:
            self.violations.append(f"the stable answer before epoch {epoch} is missing")
        if not self._right(epoch, answer):
            self.violations.append(f"a wrong answer of epoch {epoch} was called stable")
        self.stable.add(epoch)
        self.tentative.discard(epoch)
        self.newest = epoch

    def doubt_newest(self) -> None:
        """The driver has died: the newest answer may be given again."""
        self.in_doubt = self.newest

    def guess(self, epoch: Epoch, answer: Array | None) -> None:
        """A tentative answer: never where a stable one has been."""
        if epoch in self.stable:
            self.violations.append(f"the stable answer of epoch {epoch} was withdrawn")
        self.tentative.add(epoch)
        self.wrong += not self._right(epoch, answer)

    def _right(self, epoch: Epoch, answer: Array | None) -> bool:
        return answer is not None and bool(np.array_equal(answer, self.truth[epoch]))


class _Run:
    """Main or a twin: its slots, and what runs them."""

    def __init__(self, runner: Runner[LocalCluster], host: HeapHost) -> None:
        self.runner, self.host = runner, host

    def sums(self, scenario: EpochScenario) -> Array | None:
        """The answer: the states of the last operator; None where one is missing."""
        held = []
        for slot in each_slot(scenario.copies):
            found = self.host.found(scenario.names[-1], slot)
            if found is None:
                return None
            sums = found.state["sums"]
            assert isinstance(sums, Vector)
            held.append(sums.values.copy())
        return np.stack(held)


class TwinWorld:
    """One query under barrier snapshots that goes on after losses.

    Args:
        scenario: The query; its policy is a barrier.
        how: What lost slots do meanwhile.
        strategy: How main and twin share the cluster.

    Example:
        >>> from tether.policies.barrier import Barrier
        >>> from tether.simulate.epoch_query import EpochScenario
        >>> world = TwinWorld(EpochScenario(copies=2, policy=Barrier(4, mode="sync")))
        >>> for _ in range(7):
        ...     world.run_main()
        >>> world.lose("main", 1)
        >>> world.settle(3)
        >>> world.reader.violations, sorted(world.reader.stable)
        ([], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    def __init__(
        self,
        scenario: EpochScenario,
        *,
        how: Missing = "stale",
        strategy: to.Strategy = "delay",
    ) -> None:
        self.scenario, self._how = scenario, how
        self._operators, self._instances, self._settings = query_of(scenario)
        self.reader, self.story = Reader(), Story()
        self._ideal = np.zeros((scenario.copies, scenario.keys), np.int64)
        self._numbers = count()
        self._take_over = LocalTakeOver(self._open_twin, self._swap, strategy)
        self.store = MemoryStore()
        self.committed = NEVER
        """The last epoch that the host, Spark elsewhere, has committed."""
        self._held = False
        self._main = self._twin = self._open()

    @property
    def protocol(self) -> to.TakeOver:
        """What the protocol knows."""
        return self._take_over.protocol

    @property
    def note(self) -> to.Note | None:
        """The note, as it is durable."""
        return self._take_over.note

    @property
    def asked(self) -> Sequence[to.Instruction]:
        """What is still to be done."""
        return self._take_over.asked

    @property
    def twin(self) -> _Run | None:
        """The twin, where there is one."""
        return None if self._take_over.twin is None else self._twin

    def _plan(self) -> LanePlan:
        return LanePlan(
            operators=self._operators,
            settings=self._settings,
            store=self.store,
            address=HeldStore(self.store.for_slots()),
            run_id=f"run-{next(self._numbers)}",
            reports=self.story,
            feedback=FeedbackBox(),
        )

    def _open(self) -> _Run:
        host = HeapHost(self._instances)
        cluster = LocalCluster(self._operators, host)
        return _Run(open_lane(self._plan(), cluster, "local", epoch_after(self.committed)), host)

    def _complete(self) -> Epoch:
        return snapshot_before(self._main.runner, epoch_after(self.committed))

    # ---- what can happen -------------------------------------------------------------------------

    def run_main(self, *, dies: bool = False) -> None:
        """Main runs its next epoch, if nothing holds it.

        Args:
            dies: Whether the driver dies before the host has committed the epoch.
        """
        if self._held or self.protocol.phase == "noting":
            return
        epoch = epoch_after(self.committed)
        self._come_true(epoch)
        try:
            self._main.runner.run(EpochRows(self.scenario, epoch), epoch)
        except LostStateError as error:
            self._go_on(epoch, error.what)
            return
        answer = self._main.sums(self.scenario)
        if self.protocol.kind(epoch) == "stable":
            self.reader.give(epoch, answer)
        else:
            if self.note is None:
                self.reader.violations.append("tentative rows without a durable note")
            self.reader.guess(epoch, answer)
        if dies:
            self.crash()
            return
        self.committed = epoch
        self._take_over.tell(to.MainEnded(epoch=epoch))

    def _come_true(self, epoch: Epoch) -> None:
        if epoch == len(self.reader.truth):
            keys, amounts = EpochRows(self.scenario, epoch).at(self.scenario.operators - 1)
            np.add.at(self._ideal, (np.arange(self.scenario.copies)[:, None], keys), amounts)
            self.reader.truth.append(self._ideal.copy())

    def _go_on(self, epoch: Epoch, why: str) -> None:
        runner = self._main.runner
        go_on_without(runner, who_is_there(runner, epoch), epoch, why, self._how)
        self._take_over.tell(to.Lost(epoch=epoch, snapshot=self._complete()))

    def run_twin(self) -> None:
        """The twin runs an epoch that main has ended."""
        last, twin = self.protocol.twin, self.twin
        if twin is None or last is None or last >= self.committed:
            return
        if any(isinstance(one, to.SaveTwin | to.WriteNote) for one in self.asked):
            return  # what it was asked for, and what it has given, must be done and durable first
        epoch, number = epoch_after(last), self.protocol.twins
        try:
            twin.runner.run(EpochRows(self.scenario, epoch), epoch)
        except LostStateError:
            self._take_over.lost(number)
            return
        if self.protocol.speaks(epoch):
            self.reader.give(epoch, twin.sums(self.scenario))
        self._take_over.tell(to.TwinEnded(epoch=epoch, twin=number))

    def lose(self, whose: str, slot: int) -> None:
        """A slot of every operator loses its state: main's or the twin's."""
        run = self._main if whose == "main" else self.twin
        if run is not None:
            for name in self.scenario.names:
                run.host.lose(name, list(each_slot(self.scenario.copies))[slot])

    def crash(self) -> None:
        """The driver dies and all executors with it; another one starts from what is durable."""
        self.reader.doubt_newest()
        self._held = False
        self._main = self._open()
        self._take_over.resume(self._complete(), epoch_after(self.committed))
        if self.note is not None and self.protocol.phase != "over":
            self._main.runner.books.aside.go_on_without((), self._how)

    # ---- instructions ----------------------------------------------------------------------------

    def obey(self) -> None:
        """Carry out the next instruction."""
        if not self.asked:
            return
        match self._take_over.obey():
            case to.HoldMain():
                self._held = True
                self._take_over.tell(to.MainHeld(epoch=self.committed))
            case to.ReleaseMain():
                self._held = False

    def _open_twin(self, number: int, snapshot: Epoch) -> Runner[LocalCluster]:
        del number
        host, main = HeapHost(self._instances), self._main.runner
        plan = replace(self._plan(), reports=QuietStory(self.story))
        cluster = LocalCluster(self._operators, host)
        runner = open_twin(plan, cluster, main, snapshot=snapshot, arena=plan.run_id)
        self._twin = _Run(runner, host)
        return runner

    def _swap(self, runner: Runner[LocalCluster], epoch: Epoch) -> None:
        del runner, epoch
        self._main = self._twin

    def settle(self, epochs: int) -> None:
        """Run a number of epochs without failures, and then until nothing is missing."""
        goal = self.committed + epochs
        for _ in range(20 * (goal + 10)):
            while self.asked:
                self.obey()
            self.run_twin()
            if self.committed < goal:
                self.run_main()
            elif self.protocol.phase == "whole":
                return
        self.reader.violations.append(f"it never became whole again: {self.protocol}")
