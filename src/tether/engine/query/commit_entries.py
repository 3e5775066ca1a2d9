"""What a commit record says of the slots of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import SlotCommit
from tether.core.ids import Epoch, Slot, each_slot
from tether.core.windows import Hopping

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory
    from tether.core.windows import Window
    from tether.engine.messages import SlotStatus
    from tether.engine.operators import QueryOperator
    from tether.policies.policy import Policy


def slot_commit(status: SlotStatus) -> SlotCommit:
    """What a commit record says of a slot."""
    frame, recovery = status.frame, status.recovery
    loss = recovery.loss if recovery else None
    return SlotCommit(
        epoch=status.epoch,
        frame=frame.ref if frame else None,
        kind=frame.kind if frame else None,
        carried=frame.carried if frame else 0.0,
        divergence_after=status.divergence,
        exact=status.exact,
        failures=status.failures,
        lineage=status.lineage,
        policy_state=status.policy_state,
        under=status.under,
        theta=status.theta,
        losses=() if loss is None else (loss,),
        losses_in_all=status.losses,
    )


class InForce(NamedTuple):
    """What the newest record of a slot says of the price of a loss."""

    theta: float
    under: str


def has_news(
    policy: Policy, window: Window | None, status: SlotStatus, recorded: InForce | None
) -> bool:
    """Whether a restart must know of this epoch of the slot.

    Above all it must know what losing the slot costs. A θ that has changed, whether a window gave it
    back or the query has another budget, counts only once it is durable: a loss is priced by what
    is. And where rows end windows, it must know how many there were: a slot that counted from an older
    number would end its windows, and clear its state, in other epochs than it should.
    """
    if status.must_record or status.frame is not None or status.recovery is not None:
        return True
    by_items = window is not None and window.by == "items"
    counted = by_items and (isinstance(window, Hopping) or policy.recovery.exact)
    return bool(counted and status.rows_in) or recorded != (status.theta, status.under)


def slim(status: SlotStatus) -> SlotStatus:
    """The status without the items that it brought: those are not the ledger's to keep."""
    return msgspec.structs.replace(status, feedback=b"") if status.feedback else status


def in_force(history: CommitHistory, operator: QueryOperator, epoch: Epoch) -> dict[Slot, InForce]:
    """What is recorded of slots of an operator that is to run ``epoch``, where anything is."""
    facts = {
        slot: history.slot_facts(operator.name, slot, epoch) for slot in each_slot(operator.slots)
    }
    return {slot: InForce(f.theta, f.under) for slot, f in facts.items() if f.epoch is not None}
