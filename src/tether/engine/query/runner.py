"""Runs the epochs of a lane, one after the other, on any host's cluster.

What a crash right after each step means:

1. The orders are packed. (Crash: nothing has happened; the epoch is run again.)
2. The cluster runs all slots, and lets the sinks have the output. (Crash: slots that finished find
   this epoch applied when it is run again, roll it back and apply it once more.)
3. The epoch is committed; see :mod:`tether.engine.query.committer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tether.chaos.faults import reach
from tether.core.graph import SlotId
from tether.core.ids import Epoch, each_slot, epoch_after, epoch_before
from tether.engine.ports import BrokenOffError
from tether.engine.query.exact_points import ExactPoints
from tether.engine.query.missed import refuse_lost
from tether.engine.recovery.lost import is_loss, what_was_lost

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.engine.ports import Cluster, Orders, Statuses
    from tether.engine.query.catching_up import CatchingUp
    from tether.engine.query.committer import Committer
    from tether.engine.query.copies import Copies
    from tether.engine.query.lane import Books, LanePlan

C = TypeVar("C", bound="Cluster[Any]")

IN_VAIN = 3
"""Number of times that an epoch is run again after losses that affect silent seats only."""


@dataclass(frozen=True, kw_only=True)
class Runner(Generic[C]):
    """A lane that is open: epochs may run."""

    plan: LanePlan
    """What was known before the first epoch."""
    cluster: C
    """Where slots run."""
    books: Books
    """The lane's books."""
    committer: Committer
    orders: Orders
    """What slots are told."""
    catching_up: CatchingUp
    """Which slots are behind the others, if any."""
    copies: Copies | None = None
    """Copies of slots, where there are any."""

    exact_points: ExactPoints = field(init=False)
    """Exact states that a healing query goes back to."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact_points", ExactPoints(self.books))

    @property
    def committed_epoch(self) -> Epoch:
        """The last epoch that is committed."""
        return self.committer.committed_epoch

    def run(self, given: Any, epoch: Epoch) -> None:
        """Run one epoch of all operators to its commit.

        Args:
            given: The epoch's rows, as the cluster takes them.
            epoch: Number of the epoch.
        """
        behind, keeper = self.catching_up.now, self.books.keeper
        if keeper is not None:
            if behind is None and self.books.aside.records:
                keeper.complete(epoch)
                self._move_copies(epoch)
                keeper.begin(epoch)
                self._fill_copies(epoch)
        elif self.books.written is not None and self._lopsided():
            self.flush(epoch_before(epoch))  # the host has committed that one
            self.move()
            self.books.reports.add("respread", "executors have joined", epoch)
        self.exact_points.begin(epoch)
        only = behind.operators if behind is not None else None
        statuses = self._run(given, epoch, only)
        reach(self.plan.settings.faults, "after-job", -1, epoch)
        self.committer.commit(epoch, statuses)
        self.exact_points.note(epoch, statuses)
        self.catching_up.applied(epoch)

    def run_as_one(self, given: Any, epoch: Epoch) -> None:
        """Run all epochs since the committed one as a single one: its number is that of the last.

        Args:
            given: The rows of all of them.
            epoch: The last of them.
        """
        with self.books.aside.as_one(self.committed_epoch):
            self.run(given, epoch)

    def _run(self, given: Any, epoch: Epoch, only: Collection[str] | None) -> Statuses:
        """Run the slots; after a loss run them again, with copies in place of those that were lost."""
        in_vain = 0
        while True:
            try:
                refuse_lost(self, epoch)
                statuses = self.cluster.run(self.orders, epoch, given, only)
            except BrokenOffError:
                cause = "an executor died within the epoch"
                self.books.reports.add("resent", cause, epoch)
                continue
            except Exception as error:
                if self.copies is None or not is_loss(error) or in_vain == IN_VAIN:
                    raise
                answer = self.copies.promote(self.orders, epoch, what_was_lost(error))
                if answer == "stuck":
                    raise
                in_vain += answer == "unchanged"
                continue
            return statuses if self.copies is None else self.copies.note(epoch, statuses)

    def _fill_copies(self, epoch: Epoch) -> None:
        """Let a snapshot end this epoch, from which empty copies are filled in the next."""
        keeper = self.books.keeper
        if self.copies is None or keeper is None or keeper.barrier is not None:
            return
        if self.copies.fill_now(epoch):
            keeper.begin_last(epoch, "copies are to be filled")

    def _move_copies(self, epoch: Epoch) -> None:
        """Place all seats again if a copy is badly placed and a snapshot allows it; or move one."""
        if self.copies is not None and self.copies.move_now(epoch):
            self.books.lineages.distrust(self.books.operators.values())
            self.move()
            cause = "a copy was where it would die with its slot"
            self.books.reports.add("respread", cause, epoch)
        elif self.copies is not None:
            self.copies.move_one(epoch)

    def _lopsided(self) -> bool:
        if self.books.aside.followed:
            return False
        return self.cluster.lopsided([one.places() for one in self.books.ledgers.values()])

    def move(self) -> None:
        """Place slots again, all or only those that went back; they restore their state there."""
        stay = self.catching_up.now is not None
        if not stay:
            self.clean()  # remove the states where they are now: after the move nothing would find them
        self.cluster.place(stay=stay)
        if self.copies is not None:
            self.copies.place()

    def flush(self, epoch: Epoch) -> None:
        """Make all state durable that is not yet, as of the end of ``epoch``."""
        keeper = self.books.keeper
        if self.books.written is None or epoch < self.books.first_epoch:
            return
        if keeper is not None:
            if epoch != self.committed_epoch:
                return  # the books have moved past that epoch; the last snapshot stays the newest
            keeper.complete(epoch_after(epoch))
            keeper.begin_last(epoch)
        statuses = self.cluster.ask(self.orders, "flush", epoch)
        slots = {
            SlotId(name, slot)
            for name, one in self.books.operators.items()
            for slot in each_slot(one.slots)
        }
        self.books.reports.add_unflushed(sorted(slots - statuses.keys()), epoch)
        if keeper is None:
            self.committer.amend(epoch, statuses)
        else:
            keeper.note(epoch, statuses, self.books.held())
            keeper.complete(epoch_after(epoch))

    def clean(self) -> None:
        """Remove the resident state."""
        self.cluster.clean(self.orders, self.committed_epoch)

    def release(self) -> None:
        """Forget where slots were placed."""
        self.cluster.release()
