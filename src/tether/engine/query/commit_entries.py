"""What a commit record says of the slots of an epoch, and of the stream's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import SlotCommit
from tether.core.windows import Hopping
from tether.engine.messages import StreamClock
from tether.spark.graph.exactness import is_exact

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory
    from tether.core.windows import Window
    from tether.engine.messages import SlotStatus
    from tether.policies.policy import Policy
    from tether.spark.graph.flow import OperatorNode
    from tether.spark.graph.prepared import PreparedOperator

_CLOCK = msgspec.msgpack.Decoder(StreamClock)


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
    is.
    """
    if status.frame is not None or status.recovery is not None:
        return True
    counted = window is not None and window.by == "items" and is_exact(policy)
    return bool(counted and status.rows_in) or recorded != (status.theta, status.under)


def slim(status: SlotStatus) -> SlotStatus:
    """The status without the items that it brought: those are not the ledger's to keep."""
    return msgspec.structs.replace(status, feedback=b"") if status.feedback else status


def in_force(history: CommitHistory, node: OperatorNode, epoch: int) -> dict[int, InForce]:
    """What is recorded of slots of an operator that is to run ``epoch``, where anything is."""
    facts = {slot: history.slot_facts(node.name, slot, epoch) for slot in range(node.slots)}
    return {slot: InForce(f.theta, f.under) for slot, f in facts.items() if f.epoch is not None}


def stored_lineages(history: CommitHistory, node: OperatorNode, epoch: int) -> dict[int, str]:
    """Lineages that slots of an operator which is to run ``epoch`` must have, where recorded."""
    facts = {slot: history.slot_facts(node.name, slot, epoch) for slot in range(node.slots)}
    return {slot: fact.lineage for slot, fact in facts.items() if fact.lineage}


# ---- the clock ----------------------------------------------------------------------------------


def keeps_clock(operator: PreparedOperator) -> bool:
    """Whether the end of a window, and with it the state, depends on how far event time has come."""
    window = operator.window
    return window is not None and window.by == "seconds" and operator.policy.keeps_backups


def clock_has_news(operator: PreparedOperator, before: StreamClock, after: StreamClock) -> bool:
    """Whether a restart must know the clock as it is after this epoch.

    It must know which windows have ended and which have not: one that is ended twice, or never,
    leaves a state that no loss accounts for. So the clock is stored when it is first known, and when
    it has passed the end of a window. Under an exact policy every epoch leaves a record anyway.
    """
    if is_exact(operator.policy) or after.watermark is None or after.passed is None:
        return is_exact(operator.policy)
    if before.watermark is None:
        return True
    window = operator.window
    ends = (
        window.ends(after=after.passed, upto=after.watermark) if isinstance(window, Hopping) else ()
    )
    return any(True for _ in ends)


def clock_name(operator: PreparedOperator) -> str:
    """Under which name the operator's clock is stored."""
    return f"{operator.name}.clock"


def clock_commit(clock: StreamClock, epoch: int) -> SlotCommit:
    """The clock as of the end of an epoch, as a line of its commit record."""
    packed = msgspec.msgpack.encode(clock)
    return SlotCommit(epoch=epoch, divergence_after=0.0, theta=0.0, policy_state=packed)


def stored_clock(history: CommitHistory, operator: PreparedOperator, epoch: int) -> StreamClock:
    """The clock of a query that is to run ``epoch``; one that knows nothing where none is stored."""
    facts = history.slot_facts(clock_name(operator), 0, epoch)
    if not facts.policy_state:
        return StreamClock()
    clock = _CLOCK.decode(facts.policy_state)
    if facts.epoch == epoch - 1:
        return clock
    # What ended by that clock did so in the epoch after it; none has ended since. Rows may be newer
    # than it knows of by now, and a loss must not be placed before them.
    return msgspec.structs.replace(clock, passed=clock.watermark, newest=None)
