"""A policy's memory of a slot, as the bytes that are kept beside the state and in commit records."""

from __future__ import annotations

import msgspec

from tether.core.policy import SlotPolicyState

encode_policy_state = msgspec.msgpack.Encoder().encode
decode_policy_state = msgspec.msgpack.Decoder(SlotPolicyState).decode
