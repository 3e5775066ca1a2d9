"""A policy's memory of a slot, as the bytes that are kept beside the state and in commit records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.policies.memory import SlotPolicyState
from tether.policies.terms import taken_over

if TYPE_CHECKING:
    from tether.engine.slot.program import Program

encode_policy_state = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SlotPolicyState).decode


def policy_state_of(program: Program, stored: bytes, under: str, losses: int) -> SlotPolicyState:
    """What the program's policy knows of a slot.

    Args:
        program: With the policy in force now.
        stored: What was stored; nothing where the slot has never committed.
        under: Name of the terms that this belongs to. Under others it is not simply gone on with: it
            may speak of another budget, and of places in another window.
        losses: How many losses the slot has had, under whatever terms.
    """
    state = _decode(stored) if stored else program.policy.initial()
    return state if under == program.terms else taken_over(state, losses)
