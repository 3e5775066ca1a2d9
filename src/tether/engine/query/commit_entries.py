"""The entries of a commit record for the slots of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import SlotCommit
from tether.core.ids import Epoch, Slot, each_slot

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory
    from tether.core.windows import Window
    from tether.engine.messages import SlotStatus
    from tether.engine.operators import QueryOperator
    from tether.policies.policy import Policy


def slot_commit(status: SlotStatus) -> SlotCommit:
    """The entry of a commit record for a slot."""
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
    """The terms by which a loss is priced, from the newest record of a slot."""

    theta: float
    under: str


def has_news(
    policy: Policy, window: Window | None, status: SlotStatus, recorded: InForce | None
) -> bool:
    """Whether a restart must know of this epoch of the slot.

    Above all it must know the cost of losing the slot. A loss is priced by the θ that is durable, so a θ
    that has changed (a window has restored it, or the query has another budget) must be recorded before
    it counts. And where windows are counted in rows it must know the number of rows: with an older
    number the slot would end its windows, and clear its state, in the wrong epochs.
    """
    if status.must_record or status.frame is not None or status.recovery is not None:
        return True
    counted = (
        window is not None and window.by == "items" and (window.has_ends or policy.recovery.exact)
    )
    return bool(counted and status.rows_in) or recorded != (status.theta, status.under)


def slim(status: SlotStatus) -> SlotStatus:
    """The status without its feedback items, which the ledger does not need."""
    return msgspec.structs.replace(status, feedback=b"") if status.feedback else status


def in_force(history: CommitHistory, operator: QueryOperator, epoch: Epoch) -> dict[Slot, InForce]:
    """The recorded terms of an operator's slots that run ``epoch`` next, as far as there are any."""
    facts = {
        slot: history.slot_facts(operator.name, slot, epoch) for slot in each_slot(operator.slots)
    }
    return {slot: InForce(f.theta, f.under) for slot, f in facts.items() if f.epoch is not None}
