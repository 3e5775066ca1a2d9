"""Continuing although slots are lost, in the same way on every host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, epoch_before
from tether.engine.recovery.lost import LostStateError

if TYPE_CHECKING:
    from tether.core.graph import SlotId
    from tether.engine.ports import Statuses
    from tether.engine.query.aside import Missing
    from tether.engine.query.runner import Runner


def snapshot_before(runner: Runner[Any], epoch: Epoch) -> Epoch:
    """Epoch of the newest complete snapshot before an epoch; by default the one before the first."""
    newest = runner.books.newest_snapshot(epoch)
    return epoch_before(runner.books.first_epoch) if newest is None else newest.epoch


def who_is_there(runner: Runner[Any], epoch: Epoch, loss: BaseException | None = None) -> Statuses:
    """Reports of the slots and copies that have the state of the previous epoch.

    Empty while executors are dying, because then it is not known which slots are left.

    Args:
        runner: The run.
        epoch: The epoch that it is about to run.
        loss: How the loss was found. If all slots were probed for that, they are not probed again.
    """
    if isinstance(loss, LostStateError) and loss.there is not None and runner.copies is None:
        return loss.there
    if runner.copies is not None:
        return runner.copies.there(runner.orders, epoch_before(epoch)) or {}
    try:
        found: Statuses = runner.cluster.ask(runner.orders, "probe", epoch_before(epoch))
    except Exception:
        return {}
    return found


def go_on_without(
    runner: Runner[Any], there: Statuses, epoch: Epoch, why: str, how: Missing
) -> frozenset[SlotId]:
    """Let the remaining slots, and copies of the lost ones, run the epoch.

    Args:
        runner: The run.
        there: The seats that have the state of the previous epoch.
        epoch: The epoch that could not be run.
        why: What was lost.
        how: What lost slots do until they are recovered.

    Returns:
        Slots without any seat that can speak.
    """
    if runner.copies is None:
        lost = frozenset(runner.plan.settings.graph.slots) - there.keys()
    else:
        lost = runner.copies.go_on(there, epoch, why)
    runner.cluster.forget_reports()
    if runner.books.keeper is not None:
        runner.books.keeper.give_up(why, epoch)
    runner.books.aside.go_on_without(lost, how)
    runner.books.lineages.distrust_slots(lost)
    return lost
