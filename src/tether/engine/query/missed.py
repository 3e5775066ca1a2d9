"""After executors have died, finds lost slots at once, where a loss stops the epoch.

A slot that needs the whole query to go back can only fail its task. The host does not know that this is
final, and repeats the task as often as any other: sixteen attempts took twenty seconds. One task without
rows in every slot gives the same answer in a fraction of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, epoch_before
from tether.engine.recovery.lost import LostStateError

if TYPE_CHECKING:
    from tether.engine.query.runner import Runner


def refuse_lost(runner: Runner[Any], epoch: Epoch) -> None:
    """Look for slots without a state, if executors have died since the last time.

    Args:
        runner: The lane that is about to run an epoch.
        epoch: The epoch.

    Raises:
        LostStateError: Slots have lost state that only a rewind of the whole query can restore.
    """
    books = runner.books
    if books.keeper is None:
        return  # under this policy slots restore their own state
    # Asked for in every epoch, because it covers the time since it was last asked for.
    if not runner.cluster.shaken() or runner.catching_up.now is not None:
        return
    newest = books.newest_snapshot(epoch)
    durable = epoch_before(books.first_epoch) if newest is None else newest.epoch
    if durable == epoch - 1:
        return  # slots that lost their state restore it from that snapshot
    try:
        there = runner.cluster.ask(runner.orders, "probe", epoch_before(epoch))
    except Exception:  # more executors are dying: the slots' tasks will fail and show it
        return
    # The graph is that of the whole query; a lane may run only some of its operators.
    mine = {slot for slot in runner.plan.settings.graph.slots if slot.operator in books.operators}
    lost = mine - there.keys() - books.aside.missing
    if lost:
        first = min(lost)
        raise LostStateError(
            f"Slot {first.slot} of {first.operator!r} has lost its state before epoch {epoch}.",
            why=f"An executor died; {len(lost)} of {len(mine)} slots have lost theirs.",
            do="Nothing: the query goes back to its newest complete snapshot.",
            there=there,
        )
