"""A policy's memory of a slot, as the bytes that are kept beside the state and in commit records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.policy import SlotPolicyState

if TYPE_CHECKING:
    from tether.core.policy import Policy

encode_policy_state = msgspec.msgpack.Encoder().encode
decode_policy_state = msgspec.msgpack.Decoder(SlotPolicyState).decode


def policy_state_of(policy: Policy, stored: bytes) -> SlotPolicyState:
    """What was stored of a slot; where nothing was, that of a slot which has never failed."""
    return decode_policy_state(stored) if stored else policy.initial()
