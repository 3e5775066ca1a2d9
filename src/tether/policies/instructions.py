"""The instructions of policies. The engine carries them out in order (``engine.slot.interpreter``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from tether.core.ids import Epoch, Failures, SnapshotNumber

Cause = Literal["theta", "every-epoch", "every-items", "flush", "compaction", "snapshot", "items"]
"""Why a frame was written; shown in stories and by ``tether inspect``. The first four come from a
policy. ``compaction``: the partial frames since the last full one have become too large. ``snapshot``: a
part of a snapshot, or what is in flight in it. ``items``: logged rows, or feedback on its way."""


class BackUpState(msgspec.Struct, frozen=True, kw_only=True, tag="back-up-state"):
    """Make state durable, worst entries first, until the divergence is at most ``target``."""

    target: float
    cause: Cause
    wait: bool = True
    """Whether the epoch may be committed only once this is durable. If not, it may be written in the
    background; waiting for it is always allowed."""
    rounding: float = 0.0
    """Most divergence beyond ``target`` that may be left because floats are written rounded. What is
    written in the background is not rounded."""


class RecordFailures(msgspec.Struct, frozen=True, kw_only=True, tag="record-failures"):
    """Make the number of failures durable before the slot continues (AF-Stream 2019 §3.5.2).

    All that the policy remembers of the slot is stored with it, and given to ``step`` after the next
    loss.

    This is also needed where the number decreases because a window has restored θ: until the larger θ is
    durable, no epoch that uses it may be committed.
    """

    failures: Failures


class LogRows(msgspec.Struct, frozen=True, kw_only=True, tag="log-rows"):
    """Make the epoch's rows for this slot durable before it processes them."""

    epoch: Epoch


class TakePart(msgspec.Struct, frozen=True, kw_only=True, tag="take-part"):
    """Copy the state as it is now, and make the copy durable as the slot's part of a snapshot."""

    number: SnapshotNumber
    onto: SnapshotNumber | None
    """The snapshot whose part this one builds on: only what changed since is written. None: all."""
    wait: bool
    """Whether the epoch may be committed only once it is durable."""


Instruction = BackUpState | RecordFailures | LogRows | TakePart
