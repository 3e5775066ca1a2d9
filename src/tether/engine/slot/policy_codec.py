"""A policy's state for a slot, encoded for the memory beside the state and for commit records."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.ids import Failures
from tether.policies.memory import SlotPolicyState

if TYPE_CHECKING:
    from tether.engine.slot.program import Program

encode_policy_state = msgspec.msgpack.Encoder().encode


@cache
def _decoder(state_type: type[SlotPolicyState]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(state_type)


def policy_state_of(
    program: Program, stored: bytes, under: str, losses: Failures, items: int | None = None
) -> Any:
    """The state of the program's policy for a slot.

    Args:
        program: With the policy in force now.
        stored: What was stored; nothing where the slot has never committed.
        under: Name of the terms that this belongs to. If the current terms differ, it cannot simply be
            continued, because it may refer to another budget, or to positions in another window.
        losses: How many losses the slot has had, under whatever terms.
        items: Rows that the slot has processed, where the caller has a newer number than the stored one.
    """
    policy = program.policy
    if under == program.terms:
        return _decoder(policy.state_type).decode(stored) if stored else policy.initial()
    shared = _decoder(SlotPolicyState).decode(stored) if stored else SlotPolicyState()
    return policy.resumed(losses, shared.items if items is None else items)
