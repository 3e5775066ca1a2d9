"""The exact policy of Spark Streaming: every change is durable at the end of its epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tether.policies.base import BasePolicy
from tether.policies.events import EpochApplied, Event
from tether.policies.instructions import BackUpState, Instruction
from tether.policies.recovery import LAST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.memory import SlotPolicyState
    from tether.policies.recovery import Recovery


@dataclass(frozen=True, slots=True)
class MiniBatch(BasePolicy):
    """Back up all that an epoch changed, before the epoch may be committed.

    Guarantee: exact. Every committed epoch is durable, and the rows of one that was not committed
    are read again by Spark, so no items need replay (AF-Stream 2019 §6.1). The backup is asked for
    whatever the divergence: one that counts keys may be 0 though values have changed.

    Example:
        >>> from tether.core.placement import Placement
        >>> policy = MiniBatch()
        >>> done = EpochApplied(epoch=1, divergence=3.0, items=7)
        >>> policy.step(policy.initial(), done, Placement())[1]
        (BackUpState(target=0.0, cause='every-epoch', wait=True, rounding=0.0),)
    """

    about: ClassVar[str] = "Everything an epoch changed is durable before the epoch counts: exact."

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "mini-batch"

    @property
    def recovery(self) -> Recovery:
        """From the backup of the epoch before."""
        return LAST_EPOCH

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values."""
        return {"policy": self.name}

    def threshold(self, state: SlotPolicyState, placement: Placement) -> float:  # noqa: ARG002
        """0: no divergence may be carried into a committed epoch."""
        return 0.0

    def step(
        self,
        state: SlotPolicyState,
        event: Event,
        placement: Placement,  # noqa: ARG002
    ) -> tuple[SlotPolicyState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do."""
        if isinstance(event, EpochApplied):
            backup = BackUpState(target=0.0, cause="every-epoch")
            return self.counting(state, event), (backup,)
        return self.usual(state, event)
