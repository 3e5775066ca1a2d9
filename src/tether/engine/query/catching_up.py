"""Rewinding some slots only: the others keep their state and wait for them.

ABS 2015 §5: a lost slot needs the items since the snapshot again, so the slots that send to it must
produce them again, up to the source. All others keep their state and drop items that they have seen.
Here items are numbered by epochs. So while slots catch up, epochs that were committed before are run
once more for the operators of those slots alone: slots that stayed ignore their rows, sinks get nothing
because they have had the output, and no snapshot begins.

This is correct only if an epoch has the same rows as the first time, and operators compute the same from
them. The rows are checked, epoch by epoch, against the stream's log as it was before it was cut. That
operators repeat themselves is a promise of theirs (``Operator.repeats``), and the host knows whether the
steps between them do. If either condition does not hold, all slots go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, Slot, each_slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tether.core.graph import Graph, SlotId
    from tether.engine.operators import QueryOperator


@dataclass(frozen=True)
class CatchUp:
    """Slots that went back to a snapshot, until they reach the epoch of those that stayed."""

    back: frozenset[SlotId]
    """The slots that went back."""
    through: Epoch
    """The last epoch that the others have applied, and the last one that is run again."""
    rows: Mapping[Epoch, Any]
    """What each epoch's rows were the first time."""

    @property
    def operators(self) -> frozenset[str]:
        """Operators with at least one slot that went back; only these are run."""
        return frozenset(slot.operator for slot in self.back)

    def kept(self, operator: str, slots: int) -> frozenset[Slot]:
        """Slots of an operator that keep their state."""
        back = frozenset(slot.slot for slot in self.back if slot.operator == operator)
        return frozenset(each_slot(slots)) - back


class CatchingUp:
    """Which slots are behind the others now, if any."""

    def __init__(self) -> None:
        self._now: CatchUp | None = None

    @property
    def now(self) -> CatchUp | None:
        """The slots that are behind; None while all slots are at the same epoch."""
        return self._now

    def begin(self, catch_up: CatchUp | None) -> None:
        """Some slots went back; None: all of them did."""
        self._now = catch_up

    def applied(self, epoch: Epoch) -> None:
        """Note that an epoch is committed; after the last one that is run again, no slot is behind."""
        if self._now is not None and epoch == self._now.through:
            self._now = None


def may_stay(operators: Iterable[QueryOperator]) -> bool:
    """Whether slots may keep their state while others go back.

    They may if every epoch that is run again makes the same rows as before. They may not in a cycle,
    where all slots depend on each other; nor where windows end by event time, because then a slot's work
    depends on the progress of all slots.
    """
    return all(one.repeats and one.feedback_to is None and not one.keeps_clock for one in operators)


def must_be_restored(
    graph: Graph, operators: Iterable[QueryOperator], lost: Collection[SlotId]
) -> frozenset[SlotId]:
    """The lost slots, and those that may get other rows than the first time.

    Rows of an operator without a key may be distributed differently when an epoch is run again. So all
    slots of such an operator are restored together.
    """
    whole = {
        one.name
        for one in operators
        if not one.keyed and any(slot.operator == one.name for slot in lost)
    }
    return frozenset(slot for slot in graph.slots if slot in lost or slot.operator in whole)
