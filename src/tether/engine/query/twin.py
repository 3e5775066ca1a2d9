"""A second run of a lane, from a snapshot: opened beside the first, saved, then taken for the query.

See :mod:`tether.protocols.take_over` for when each of these is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tether.core.errors import BackupError
from tether.core.ids import Epoch, epoch_after
from tether.engine.query.aside import Aside
from tether.engine.query.clocks import Clocks
from tether.engine.query.commit_log import RunIds
from tether.engine.query.committer import Committer
from tether.engine.query.lane import Books
from tether.engine.query.lineages import Lineages
from tether.engine.query.opening import keeper_for, place_slots

if TYPE_CHECKING:
    from tether.engine.ports import Cluster, Statuses
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner

C = TypeVar("C", bound="Cluster[Any]")


def open_twin(
    plan: LanePlan, cluster: C, like: Runner[Any], *, snapshot: Epoch, arena: str
) -> Runner[C]:
    """Make a twin ready to run the epoch after a snapshot; nothing that it does becomes durable.

    Args:
        plan: The lane, with feedback, reports and a run id of the twin's own.
        cluster: Where its slots run.
        like: The run that is the query.
        snapshot: Epoch of the newest complete snapshot; the one before the first: from nothing.
        arena: Names the twin's resident state.
    """
    assert plan.store is not None
    assert like.books.log is not None
    operators, log = list(plan.operators.values()), like.books.log
    ids = RunIds(like.books.ids.query, plan.run_id)
    books = Books(
        ids=ids,
        first_epoch=like.books.first_epoch,
        operators=plan.operators,
        log=log,
        clocks=Clocks(operators),
        lineages=Lineages(operators),
        ledgers=plan.ledgers,
        feedback=plan.feedback,
        keeper=keeper_for(plan, log, ids),
        reports=plan.reports,
        aside=Aside(arena, records=False, start=snapshot),
    )
    committer = Committer(books, committed_epoch=snapshot, every_epoch=False, all_slots=False)
    for ledger in plan.ledgers.values():
        ledger.resume(log.history, epoch_after(snapshot))
    books.lineages.distrust(operators)
    committer.resume(snapshot)
    books.resume(snapshot)
    return place_slots(plan, cluster, books, committer)


def may_merge(plan: LanePlan) -> bool:
    """Whether several epochs may be run as one, with the same state at the end.

    Not with several operators, where later ones would get other rows; nor with windows or feedback,
    which depend on the number of the epoch.
    """
    settings, operators = plan.settings, plan.operators.values()
    alone = not settings.graph.edges and settings.copies is None
    return alone and all(one.merges and one.window is None for one in operators)


def save_twin(runner: Runner[Any], epoch: Epoch) -> Statuses:
    """Make the twin's state as of the end of an epoch durable; no record names it yet.

    Returns:
        What ``record_twin`` has to name.

    Raises:
        BackupError: Not all of it could be written.
    """
    keeper = runner.books.keeper
    if keeper is None:
        return _save_whole(runner, epoch)
    keeper.begin_last(epoch)
    statuses = runner.cluster.ask(runner.orders, "flush", epoch)
    keeper.note(epoch, statuses, runner.books.held())
    if not keeper.due:
        raise BackupError(
            f"The twin's state of epoch {epoch} could not be made durable.",
            why=f"{len(statuses)} slots have saved theirs. {keeper.last_failure}",
            do="Nothing: another twin starts from the same snapshot.",
        )
    return {}


def _save_whole(runner: Runner[Any], epoch: Epoch) -> Statuses:
    statuses = runner.cluster.ask(runner.orders, "flush", epoch)
    slots = sum(one.slots for one in runner.books.operators.values())
    whole = [s for s in statuses.values() if s.frame is not None and s.frame.kind == "full"]
    if len(whole) < slots or not all(status.exact for status in whole):
        raise BackupError(
            f"The twin's state of epoch {epoch} could not be made durable.",
            why=f"{len(whole)} of {slots} slots have saved all of theirs.",
            do="Nothing: another twin starts from the same exact state.",
        )
    return {
        slot: msgspec.structs.replace(status, failures=0, losses=0)
        for slot, status in statuses.items()
    }


def record_twin(runner: Runner[Any], epoch: Epoch, saved: Statuses) -> None:
    """Record what was saved as a complete snapshot: from now on the twin's slots are the query's.

    Raises:
        BackupError: The record could not be written. It is not known whether it is durable, so the query
            must end; its next start finds out.
    """
    keeper = runner.books.keeper
    runner.books.aside.become_main()
    runner.books.lineages.saved(epoch)
    if keeper is None:
        runner.committer.heal(epoch, saved)
        return
    keeper.complete(epoch_after(epoch))
    newest = runner.books.newest_snapshot(epoch_after(epoch))
    if newest is None or newest.epoch != epoch:
        raise BackupError(
            f"The take-over at epoch {epoch} could not be recorded.",
            why=keeper.last_failure,
            do="Restart the query when the backup store is there again. Nothing is lost.",
        )
