"""A base class for policies, so that a new one is a single file: subclass it and write ``step``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec.structs import replace

from tether.core.budget import Budget
from tether.core.ids import Epoch, Failures
from tether.policies.events import EpochApplied, Event, Flushed, Recovered
from tether.policies.instructions import BackUpState, Instruction, RecordFailures
from tether.policies.memory import SlotPolicyState

if TYPE_CHECKING:
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.policies.policy import Availability, CopyChoice, SnapshotSchedule

S = TypeVar("S", bound=SlotPolicyState)


class BasePolicy:
    """Defaults for the parts of a policy that rarely differ. See :class:`tether.policies.policy.Policy`.

    A policy of your own subclasses this, gives ``name``, ``recovery``, ``describe``, ``threshold`` and
    ``step``, and passes :func:`tether.testing.check_policy`.

    Example:
        >>> from tether.core.placement import Placement
        >>> from tether.policies.recovery import LAST_EPOCH
        >>> class EveryEpoch(BasePolicy):
        ...     name, recovery = "every-epoch", LAST_EPOCH
        ...     def describe(self): return {"policy": self.name}
        ...     def threshold(self, state, placement): return 0.0
        ...     def step(self, state, event, placement):
        ...         if isinstance(event, EpochApplied):
        ...             backup = BackUpState(target=0.0, cause="every-epoch")
        ...             return self.counting(state, event), (backup,)
        ...         return self.usual(state, event)
        >>> policy = EveryEpoch()
        >>> policy.step(policy.initial(), Recovered(epoch=3), Placement())[0].failures
        1
    """

    __slots__ = ()

    state_type: ClassVar[type[SlotPolicyState]] = SlotPolicyState
    about: ClassVar[str] = ""

    @property
    def keeps_backups(self) -> bool:
        """True: state is backed up."""
        return True

    @property
    def budget(self) -> Budget:
        """Nothing may be lost."""
        return Budget()

    @property
    def window(self) -> Window | None:
        """The answer covers all of the stream."""
        return None

    @property
    def snapshots(self) -> SnapshotSchedule | None:
        """It takes none."""
        return None

    @property
    def heal(self) -> SnapshotSchedule | None:
        """Losses are not repaired later."""
        return None

    @property
    def heals_by_itself(self) -> bool:
        """Losses that are healed are healed at once."""
        return True

    @property
    def availability(self) -> Availability | None:
        """Rows wait until all of them are there."""
        return None

    @property
    def copying(self) -> CopyChoice | None:
        """No slot has a copy."""
        return None

    def is_exact_point(self, epoch: Epoch) -> bool:  # noqa: ARG002
        """Only what is required is saved."""
        return False

    def initial(self) -> Any:
        """State of a slot that has never failed."""
        return self.state_type()

    def resumed(self, losses: Failures, items: int) -> Any:
        """State of a slot that was under other terms until now: all its losses count as failures."""
        return self.state_type(failures=losses, items=items)

    def most_lost_items(self, failures: Failures, placement: Placement) -> float:  # noqa: ARG002
        """l: most items that may be lost after this number of failures; 0 where state is backed up."""
        return 0.0 if self.keeps_backups else math.inf

    # ---- for ``step`` --------------------------------------------------------------------------

    def counting(self, state: S, event: EpochApplied) -> S:
        """The state with an epoch's rows counted: windows by items need the number after a loss."""
        return replace(state, items=state.items + event.items)

    def usual(self, state: S, event: Event) -> tuple[S, tuple[Instruction, ...]]:
        """The default reaction of a policy to an event.

        Rows are counted; a flush backs up everything; a failure is counted durably.
        """
        if isinstance(event, EpochApplied):
            return self.counting(state, event), ()
        if isinstance(event, Flushed):
            return state, (BackUpState(target=0.0, cause="flush"),) * self.keeps_backups
        if isinstance(event, Recovered):
            state = replace(state, failures=state.failures + 1)
            return state, (RecordFailures(failures=state.failures),)
        return state, ()
