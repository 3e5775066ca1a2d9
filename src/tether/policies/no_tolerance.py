"""The baseline: no backups at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from tether.core.budget import Budget
from tether.policies.base import BasePolicy
from tether.policies.events import Event, Recovered
from tether.policies.recovery import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.instructions import Instruction
    from tether.policies.memory import SlotPolicyState
    from tether.policies.recovery import Recovery


@dataclass(frozen=True, slots=True)
class NoTolerance(BasePolicy):
    """Back up nothing; a slot that is lost starts empty.

    Guarantee: none. After the first loss the error is unbounded: everything may be gone. It is
    there to measure what the other policies cost (AF-Stream 2019 §6.1).

    Example:
        >>> from tether.core.placement import Placement
        >>> policy = NoTolerance()
        >>> policy.threshold(policy.initial(), Placement())
        inf
        >>> after, asked = policy.step(policy.initial(), Recovered(epoch=4), Placement())
        >>> after.failures, asked
        (1, ())
    """

    about: ClassVar[str] = "Nothing is backed up: a loss loses all."

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "no-tolerance"

    @property
    def keeps_backups(self) -> bool:
        """False: the runtime need not track what changed."""
        return False

    @property
    def recovery(self) -> Recovery:
        """Losses are not repaired: the slot starts from nothing."""
        return EMPTY

    @property
    def budget(self) -> Budget:
        """Anything may be lost."""
        return Budget(max_state_error=math.inf, max_lost_items=math.inf, max_unacked_items=math.inf)

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values."""
        return {"policy": self.name}

    def threshold(self, state: SlotPolicyState, placement: Placement) -> float:  # noqa: ARG002
        """Infinite: no divergence is too large."""
        return math.inf

    def step(
        self,
        state: SlotPolicyState,
        event: Event,
        placement: Placement,  # noqa: ARG002
    ) -> tuple[SlotPolicyState, tuple[Instruction, ...]]:
        """Count failures for the story; ask for nothing."""
        if isinstance(event, Recovered):
            return replace(state, failures=state.failures + 1), ()
        return state, ()
