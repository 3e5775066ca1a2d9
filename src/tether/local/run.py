"""The driver of a query in one process: epochs in order, rewinds, restarts."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.backup.memory import MemoryMark, MemoryStore
from tether.core.graph import SlotId
from tether.core.ids import Epoch, ResidentId, Slot, each_slot, epoch_after, epoch_before
from tether.engine.messages import resident_id
from tether.engine.ports import SystemClock
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.lane import LanePlan
from tether.engine.query.opening import open_lane
from tether.engine.query.rewinder import Rewinder
from tether.engine.query.twin import open_twin
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.heap import HeapHost
from tether.engine.slot.program import HeldStore
from tether.local.cluster import AT_DRIVER, DriverKilled, LocalCluster
from tether.local.meanwhile import LocalMeanwhile
from tether.local.stream import LocalStream
from tether.observe.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from tether.chaos.faults import Point
    from tether.core.bound import Bound
    from tether.engine.operators import QueryOperator, QuerySettings
    from tether.engine.ports import Clock, Store
    from tether.engine.query.runner import Runner
    from tether.engine.slot.resident import BoundState
    from tether.local.cluster import Feed
    from tether.local.nodes import Nodes
    from tether.observe.story import Event
    from tether.operator import Operator
    from tether.protocols.copies import Seats


@dataclass
class _Driver:
    """What dies with the driver."""

    runner: Runner[LocalCluster]
    rewinder: Rewinder


class LocalRun:
    """A query that runs in this process.

    Args:
        operators: Upstream ones first.
        instances: By name, the operators as they were bound to their input.
        settings: What holds for the whole query.
        strike: Decides which faults strike; none by default.
        clock: The time; the machine's by default.
        store: Where backups are; in memory by default.
        nodes: Where slots and their copies are, if there are several.
        pace: Epochs that a twin runs for each one of the query, where the policy has ``meanwhile``.
        feedback: Makes the box in which a driver keeps feedback that is on its way.
    """

    def __init__(
        self,
        operators: Sequence[QueryOperator],
        instances: Mapping[str, Operator],
        settings: QuerySettings,
        *,
        strike: Callable[[Point, str, Slot, Epoch], bool] | None = None,
        clock: Clock | None = None,
        store: MemoryStore | None = None,
        nodes: Nodes | None = None,
        pace: int = 3,
        feedback: Callable[[], FeedbackBox] = FeedbackBox,
    ) -> None:
        self._operators = {one.name: one for one in operators}
        self._settings, self._strike, self._clock = settings, strike, clock or SystemClock()
        self._instances, self._nodes, self._pace = instances, nodes, pace
        self._make_feedback = feedback
        self.host = HeapHost(instances)
        self.fidelity = 1.0
        """Output fidelity of the rows of the last epoch; below 1 while they are tentative."""
        self.store = store or MemoryStore()
        self.told: Counter[str] = Counter()
        """Number of events of each kind; the story itself keeps only the newest events."""
        self.promoted = 0
        """Number of slots for which a copy has started to speak."""
        self.story = Story(self._count)
        self._stream, self._mark = LocalStream(), MemoryMark()
        self._runs = itertools.count()
        self._meanwhile = self._make_meanwhile()
        self._driver = self._open(Epoch(0))

    def _make_meanwhile(self) -> LocalMeanwhile | None:
        schedules = [one.policy.snapshots for one in self._operators.values()]
        how = next((one.meanwhile for one in schedules if one is not None), None)
        if how is None or self._nodes is None:
            return None
        return LocalMeanwhile(
            how, self._pace, open_twin=self._open_twin, feed=self._stream.feed, swap=self._swap
        )

    def _plan(self) -> LanePlan:
        keeps = any(one.policy.keeps_backups for one in self._operators.values())
        store: Store | None = self.store if keeps else None
        return LanePlan(
            operators=self._operators,
            settings=self._settings,
            store=store,
            address=HeldStore(self.store.for_slots()) if keeps else None,
            run_id=f"run-{next(self._runs)}",
            reports=self.story,
            feedback=self._make_feedback(),
            clock=self._clock,
            marks=[self._mark],
        )

    def _count(self, event: Event) -> None:
        self.told[event.what] += 1
        if event.what == "promoted":
            self.promoted += len(event.detail["slots"])

    def _cluster(self, host: HeapHost) -> LocalCluster:
        return LocalCluster(
            self._operators,
            host,
            self._strike,
            nodes=self._nodes,
            copies=self._settings.copies,
        )

    def _open(self, epoch: Epoch) -> _Driver:
        runner = open_lane(self._plan(), self._cluster(self.host), "local", epoch)
        if self._meanwhile is not None and self._meanwhile.unfinished:
            self._meanwhile.resume(runner, epoch)
        return _Driver(runner, Rewinder(runner, lambda: self._stream))

    def _open_twin(self, number: int, snapshot: Epoch) -> Runner[LocalCluster]:
        host = self._twin_host = HeapHost(self._instances)
        return open_twin(
            self._plan(),
            self._cluster(host),
            self.runner,
            snapshot=snapshot,
            arena=f"twin-{number}",
        )

    def _swap(self, runner: Runner[LocalCluster]) -> None:
        """A twin's slots are the query's from now on."""
        self.host = self._twin_host
        self._driver = _Driver(runner, Rewinder(runner, lambda: self._stream))

    @property
    def runner(self) -> Runner[LocalCluster]:
        """The current runner."""
        return self._driver.runner

    @property
    def tentative(self) -> bool:
        """Whether slots are missing from the query as it is."""
        return self._meanwhile is not None and not self._meanwhile.whole

    def settle(self) -> None:
        """Let a twin that is under way catch up, without further epochs of the query."""
        while self._meanwhile is not None and not self._meanwhile.whole:
            self._meanwhile.ended(self.committed_epoch)

    @property
    def committed_epoch(self) -> Epoch:
        """The last epoch that is committed."""
        return epoch_before(self._stream.next_epoch)

    def run(self, feed: Feed) -> dict[str, list[list[pa.RecordBatch]]]:
        """Run one more epoch, after any epochs that must be run again; return what slots emitted."""
        wanted = self._stream.add(feed)
        while (epoch := self._stream.next_epoch) <= wanted:
            try:
                self._driver.rewinder.check_rows(epoch)
                self.runner.run(self._stream.feed(epoch), epoch)
                if self._strike is not None:
                    self._strike("before-spark-commit", "", AT_DRIVER, epoch)
            except LostStateError as error:
                if self._meanwhile is not None:
                    self._meanwhile.go_on(self.runner, epoch, error.what)
                    continue
                self._driver.rewinder.rewind(epoch, error.what)
                self.runner.move()
                continue
            except DriverKilled:
                self.restart()
                continue
            except Exception:
                self._stream.drop(wanted)  # the next rows get this epoch's number
                raise
            self._stream.committed(epoch)
            emitted = self.runner.cluster.emitted
            if self._meanwhile is not None:
                self.fidelity = self._meanwhile.fidelity(self.runner)
                if not self._meanwhile.whole:
                    self._meanwhile.ended(epoch)
        self._stream.forget_before(self._oldest_needed(wanted))
        return emitted

    def _oldest_needed(self, epoch: Epoch) -> Epoch:
        books = self.runner.books
        if books.keeper is None:
            return epoch
        if self._meanwhile is not None and self._meanwhile.snapshot is not None:
            return epoch_after(self._meanwhile.snapshot)
        snapshot = books.newest_snapshot(epoch)
        return books.first_epoch if snapshot is None else epoch_after(snapshot.epoch)

    def lose(self, operator: str, slot: Slot) -> None:
        """Lose the resident state of one slot."""
        self.host.lose_resident(operator, self._resident(operator, slot))

    def lose_nodes(self, names: Collection[str], epoch: Epoch) -> None:
        """Nodes die before an epoch, with all that is resident there."""
        assert self._nodes is not None
        self._nodes.kill(names, epoch)
        self.runner.cluster.lose(names)
        if self._meanwhile is not None and self._meanwhile.twin is not None:
            self._meanwhile.twin.cluster.lose(names)

    def found(self, operator: str, slot: Slot) -> BoundState | None:
        """The state of the seat that speaks for a slot, if it is resident."""
        return self.host.found_resident(operator, self._resident(operator, slot))

    def _seats(self, operator: str) -> Seats | None:
        copies = self.runner.copies
        return None if copies is None else copies.seats(operator)

    def _resident(self, operator: str, slot: Slot) -> ResidentId:
        """The name of the state of the seat that speaks for a slot."""
        seats, slots = self._seats(operator), self._operators[operator].slots
        return resident_id(slots, slot, None if seats is None else seats.voices[slot])

    def restart(self) -> None:
        """Replace the driver by a new one, which knows only what is durable."""
        self._driver = self._open(epoch_after(self.committed_epoch))

    def flush(self) -> None:
        """Make all state durable, as of the last committed epoch."""
        self.runner.flush(self.committed_epoch)

    def bound(self, operator: str) -> Bound:
        """How wrong an operator's answer can be by its own losses."""
        return self.runner.books.ledgers[operator].bound()

    def slots(self) -> list[SlotId]:
        """All slots."""
        return [
            SlotId(name, slot)
            for name, one in self._operators.items()
            for slot in each_slot(one.slots)
        ]
