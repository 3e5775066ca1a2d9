"""Opens a lane for its first epoch of this run, from what is durable or from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tether.backup.audit import Expected
from tether.backup.sweeping import sweep
from tether.core.graph import SlotId
from tether.core.ids import Epoch, each_slot, epoch_after, epoch_before
from tether.engine.query.binding import bind_store
from tether.engine.query.catching_up import CatchingUp
from tether.engine.query.clocks import Clocks
from tether.engine.query.commit_log import OpenCommitLog, RunIds
from tether.engine.query.committer import Committer
from tether.engine.query.copies import Copies
from tether.engine.query.lane import Books
from tether.engine.query.lineages import Lineages
from tether.engine.query.log_opening import open_log
from tether.engine.query.orders import SlotOrders
from tether.engine.query.rescaling import settle_slots
from tether.engine.query.runner import Runner
from tether.engine.query.snapshot_keeper import SnapshotKeeper

if TYPE_CHECKING:
    from tether.engine.ports import Cluster, Store
    from tether.engine.query.lane import LanePlan

C = TypeVar("C", bound="Cluster[Any]")


class _Opened(NamedTuple):
    """A commit log that can be continued."""

    log: OpenCommitLog
    committed: Epoch
    short: bool
    """Whether records are missing at its end."""


def open_lane(plan: LanePlan, cluster: C, query_id: str, epoch: Epoch) -> Runner[C]:
    """Make a lane ready to run ``epoch``.

    Args:
        plan: The lane.
        cluster: Where its slots run.
        query_id: Id of the query, the same after every restart.
        epoch: The host's next epoch.

    Raises:
        BackupUnreadableError: Commit records are missing, and the query needs them.
    """
    operators = list(plan.operators.values())
    ids = RunIds(query_id, plan.run_id)
    first = bind_store(operators, query_id, epoch, plan.store, plan.settings.allow_changed)
    opened = None if plan.store is None else _open_log(plan, plan.store, first, epoch)
    log = None if opened is None else opened.log
    if log is not None:
        settle_slots(plan, log, cluster, query_id, epoch)
    books = Books(
        ids=ids,
        first_epoch=first,
        operators=plan.operators,
        log=log,
        clocks=Clocks(operators),
        lineages=Lineages(operators, known=opened is not None or epoch == first),
        ledgers=plan.ledgers,
        feedback=plan.feedback,
        keeper=None if log is None else keeper_for(plan, log, ids),
        reports=plan.reports,
    )
    committed = epoch_before(epoch) if opened is None else opened.committed
    committer = Committer(
        books, committed_epoch=committed, every_epoch=plan.every_epoch, all_slots=plan.all_slots
    )
    if opened is not None:
        history = opened.log.history
        if committed >= first:
            for ledger in plan.ledgers.values():
                ledger.resume(history, epoch_after(committed))
        books.lineages.resume(history, operators, epoch_after(committed))
        if opened.short and books.keeper is not None:
            books.lineages.distrust(operators)
        committer.resume(committed)
        books.resume(committed, short=opened.short)
    elif epoch != first:
        for ledger in plan.ledgers.values():
            ledger.resume_without_account()
        books.tell_lost_feedback(plan.feedback.resume_without_account(operators, epoch))
    return place_slots(plan, cluster, books, committer)


def place_slots(plan: LanePlan, cluster: C, books: Books, committer: Committer) -> Runner[C]:
    """Place the slots of a lane whose books are open, and their copies; then epochs may run."""
    catching_up = CatchingUp()
    copies = copies_for(plan, books, cluster)
    orders = SlotOrders(books, catching_up, plan.settings, plan.address, copies)
    cluster.place()
    if copies is not None:
        copies.place()
    return Runner(
        plan=plan,
        cluster=cluster,
        books=books,
        committer=committer,
        orders=orders,
        catching_up=catching_up,
        copies=copies,
    )


def _open_log(plan: LanePlan, store: Store, first: Epoch, epoch: Epoch) -> _Opened:
    """Open the commit log, if it is complete or the missing records are not needed."""
    log = store.read_commits()
    last = log.history.last_epoch
    committed = epoch_before(epoch)
    if plan.all_slots:
        committed = epoch_before(first) if last is None else min(epoch_before(epoch), last)
    expected = Expected(
        next_epoch=epoch,
        first_epoch=first,
        # A lane that is behind runs up to this many waiting epochs again.
        lag=plan.settings.staleness if plan.all_slots else 0,
        goes_back=any(one.policy.recovery.rewinds for one in plan.operators.values()),
    )
    opened = open_log(
        store,
        log,
        [one.policy for one in plan.operators.values()],
        plan.marks,
        expected,
        every_epoch=plan.every_epoch,
        committed_epoch=committed,
        accept_damage=plan.settings.accept_damage,
    )
    if opened.told:
        plan.reports.add("damage", opened.told, epoch)
    sweep(store, log.history, committed, orphans=True, found=opened.frames)
    return _Opened(OpenCommitLog(store, log.history, opened.end), committed, opened.short)


def copies_for(plan: LanePlan, books: Books, cluster: Cluster[Any]) -> Copies | None:
    """The copies of a lane's slots, where there are any."""
    copies = plan.settings.copies
    return None if copies is None else Copies(books, cluster, copies, plan.settings.graph)


def keeper_for(plan: LanePlan, log: OpenCommitLog, ids: RunIds) -> SnapshotKeeper | None:
    """The coordinator of the lane's snapshots, where its policy takes any."""
    operators = list(plan.operators.values())
    schedule = operators[0].policy.snapshots
    if schedule is None:
        return None
    slots = [SlotId(one.name, slot) for one in operators for slot in each_slot(one.slots)]
    readable = plan.settings.readable_epochs
    return SnapshotKeeper(
        schedule, slots, plan.reports, readable=readable, clock=plan.clock, log=log, ids=ids
    )
