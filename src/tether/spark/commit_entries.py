"""What a commit record says of the slots of an epoch, and of the stream's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.backup.commits import SlotCommit
from tether.spark.control import StreamClock
from tether.spark.exactness import is_exact

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory
    from tether.spark.control import SlotStatus
    from tether.spark.flow import OperatorNode
    from tether.spark.prepared import PreparedOperator

_CLOCK = msgspec.msgpack.Decoder(StreamClock)


def slot_commit(status: SlotStatus) -> SlotCommit:
    """What a commit record says of a slot."""
    frame = status.frame
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
        extra=status.extra,
    )


def has_news(operator: PreparedOperator, status: SlotStatus) -> bool:
    """Whether a restart must know of this epoch of the slot."""
    if status.frame is not None or status.recovery is not None:
        return True
    window = operator.window
    counted = window is not None and window.by == "items" and is_exact(operator.policy)
    return bool((counted and status.rows_in) or (status.windows_ended and status.failures))


def slim(status: SlotStatus) -> SlotStatus:
    """The status without the items that it brought: those are not the ledger's to keep."""
    return msgspec.structs.replace(status, feedback=b"") if status.feedback else status


def stored_lineages(history: CommitHistory, node: OperatorNode, epoch: int) -> dict[int, str]:
    """Lineages that slots of an operator which is to run ``epoch`` must have, where recorded."""
    facts = {slot: history.slot_facts(node.name, slot, epoch) for slot in range(node.slots)}
    return {slot: fact.lineage for slot, fact in facts.items() if fact.lineage}


# ---- the clock ----------------------------------------------------------------------------------


def keeps_clock(operator: PreparedOperator) -> bool:
    """Whether the end of a window, and with it the state, depends on how far event time has come."""
    window = operator.window
    return window is not None and window.by == "seconds" and is_exact(operator.policy)


def clock_name(operator: PreparedOperator) -> str:
    """Under which name the operator's clock is stored."""
    return f"{operator.name}.clock"


def clock_commit(clock: StreamClock, epoch: int) -> SlotCommit:
    """The clock as of the end of an epoch, as a line of its commit record."""
    packed = msgspec.msgpack.encode(clock)
    return SlotCommit(epoch=epoch, divergence_after=0.0, policy_state=packed)


def stored_clock(history: CommitHistory, operator: PreparedOperator, epoch: int) -> StreamClock:
    """The clock of a query that is to run ``epoch``; one that knows nothing where none is stored."""
    packed = history.slot_facts(clock_name(operator), 0, epoch).policy_state
    return _CLOCK.decode(packed) if packed else StreamClock()
