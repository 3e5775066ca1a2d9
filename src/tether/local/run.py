"""The driver of a query in one process: epochs in order, rewinds, restarts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.backup.memory import MemoryStore
from tether.core.graph import SlotId
from tether.core.ids import Epoch, Slot, each_slot, epoch_after, epoch_before
from tether.engine.ports import SystemClock
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.lane import LanePlan
from tether.engine.query.opening import open_lane
from tether.engine.query.rewinder import Rewinder
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.heap import HeapHost
from tether.engine.slot.program import HeldStore
from tether.local.cluster import AT_DRIVER, DriverKilled, LocalCluster
from tether.local.stream import LocalStream
from tether.observe.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from tether.chaos.faults import Point
    from tether.core.bound import Bound
    from tether.engine.operators import QueryOperator, QuerySettings
    from tether.engine.ports import Clock, Store
    from tether.engine.query.runner import Runner
    from tether.local.cluster import Feed
    from tether.operator import Operator


@dataclass
class _Driver:
    """What dies with the driver."""

    runner: Runner[LocalCluster]
    rewinder: Rewinder


class LocalRun:
    """A query that runs here.

    Args:
        operators: Upstream ones first.
        instances: By name, the operators as they were bound to their input.
        settings: What holds for the whole query.
        strike: Decides which faults strike; none by default.
        clock: The time; the machine's by default.
        store: Where backups are; in memory by default.
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
    ) -> None:
        self._operators = {one.name: one for one in operators}
        self._settings, self._strike, self._clock = settings, strike, clock or SystemClock()
        self.host = HeapHost(instances)
        self.store = store or MemoryStore()
        self.story = Story()
        self._stream = LocalStream()
        self._runs = itertools.count()
        self._driver = self._open(Epoch(0))

    def _open(self, epoch: Epoch) -> _Driver:
        keeps = any(one.policy.keeps_backups for one in self._operators.values())
        store: Store | None = self.store if keeps else None
        plan = LanePlan(
            operators=self._operators,
            settings=self._settings,
            store=store,
            address=HeldStore(self.store.for_slots()) if keeps else None,
            run_id=f"run-{next(self._runs)}",
            reports=self.story,
            feedback=FeedbackBox(),
            clock=self._clock,
        )
        cluster = LocalCluster(self._operators, self.host, self._strike)
        runner = open_lane(plan, cluster, "local", epoch)
        return _Driver(runner, Rewinder(runner, lambda: self._stream))

    @property
    def runner(self) -> Runner[LocalCluster]:
        """What runs epochs now."""
        return self._driver.runner

    @property
    def committed_epoch(self) -> Epoch:
        """The last epoch that is committed."""
        return epoch_before(self._stream.next_epoch)

    def run(self, feed: Feed) -> dict[str, list[list[pa.RecordBatch]]]:
        """Run one more epoch, and whatever must be run again first; give what slots emitted."""
        wanted = self._stream.add(feed)
        while (epoch := self._stream.next_epoch) <= wanted:
            try:
                self._driver.rewinder.check_rows(epoch)
                self.runner.run(self._stream.feed(epoch), epoch)
                if self._strike is not None:
                    self._strike("before-spark-commit", "", AT_DRIVER, epoch)
            except LostStateError as error:
                self._driver.rewinder.rewind(epoch, error.what)
                self.runner.move()
                continue
            except DriverKilled:
                self.restart()
                continue
            self._stream.committed(epoch)
        self._stream.forget_before(self._oldest_needed(wanted))
        return self.runner.cluster.emitted

    def _oldest_needed(self, epoch: Epoch) -> Epoch:
        books = self.runner.books
        if books.keeper is None:
            return epoch
        snapshot = books.newest_snapshot(epoch)
        return books.first_epoch if snapshot is None else epoch_after(snapshot.epoch)

    def lose(self, operator: str, slot: Slot) -> None:
        """Lose the resident state of one slot."""
        self.host.lose(operator, slot)

    def restart(self) -> None:
        """The driver dies, and another one takes over what is durable."""
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
