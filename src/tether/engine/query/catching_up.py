"""Going back with few slots: the others stay, and wait until those have reached the same epoch again.

ABS 2015 §5: a lost slot needs the items since the snapshot again, so whoever sends to it must make
them again, up to the source; all others keep their state and drop what they have seen. Here items are
numbered by epochs. So while slots catch up, epochs that were committed before are run once more for
the operators of those slots alone: slots that stayed let their rows pass, sinks, which have had the
output, get nothing, and no snapshot begins.

That is right only if an epoch has the same rows as the first time and the operators make the same of
them. The first is checked, epoch by epoch, against what the stream's log said before it was cut. The
second an operator promises (``Operator.repeats``), and of steps between them the host knows it.
Where either does not hold, everybody goes back.
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
    """Slots that are on their way from a snapshot to where the others have stayed."""

    back: frozenset[SlotId]
    """Those that went back."""
    through: Epoch
    """The epoch whose end the others have come to: the last one that is run again."""
    rows: Mapping[Epoch, Any]
    """What each epoch's rows were the first time."""

    @property
    def operators(self) -> frozenset[str]:
        """Operators of which some slot went back: the only ones that are run."""
        return frozenset(slot.operator for slot in self.back)

    def kept(self, operator: str, slots: int) -> frozenset[Slot]:
        """Slots of an operator that stay as they are."""
        back = frozenset(slot.slot for slot in self.back if slot.operator == operator)
        return frozenset(each_slot(slots)) - back


class CatchingUp:
    """Which slots are behind the others now, if any."""

    def __init__(self) -> None:
        self._now: CatchUp | None = None

    @property
    def now(self) -> CatchUp | None:
        """Those that are; None while all are at one epoch."""
        return self._now

    def begin(self, catch_up: CatchUp | None) -> None:
        """Some slots went back; None: all of them did."""
        self._now = catch_up

    def applied(self, epoch: Epoch) -> None:
        """An epoch is committed: after the last one that is run again, all are where they were."""
        if self._now is not None and epoch == self._now.through:
            self._now = None


def may_stay(operators: Iterable[QueryOperator]) -> bool:
    """Whether slots may keep their state while others go back.

    They may if every epoch that is run again makes the same rows as before. Not in a cycle, where all
    slots depend on each other; nor where windows end by event time, for then what a slot does depends
    on how far all of them have come.
    """
    return all(one.repeats and one.feedback_to is None and not one.keeps_clock for one in operators)


def must_be_restored(
    graph: Graph, operators: Iterable[QueryOperator], lost: Collection[SlotId]
) -> frozenset[SlotId]:
    """The lost slots, and those that may be given other rows than before when these are.

    An operator without a key spreads rows over its slots as it likes: when they come again, a row may
    reach another slot. So all slots of such an operator are restored together.
    """
    whole = {
        one.name
        for one in operators
        if not one.keyed and any(slot.operator == one.name for slot in lost)
    }
    return frozenset(slot for slot in graph.slots if slot in lost or slot.operator in whole)
