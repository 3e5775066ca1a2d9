"""What a commit log says of a slot and of snapshots, in the words of its readers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tether.core.ids import NEVER, Epoch, Failures, Lineage, SnapshotNumber
from tether.core.losses import LossRecord

if TYPE_CHECKING:
    from tether.backup.frames import FrameRef

UNTOLD = LossRecord(
    lost="told by records that are gone",
    epoch=NEVER,
    at_most=0.0,
    theta=math.inf,
    failures=Failures(0),
    under="",
    extra=math.inf,
    items=math.inf,
)
"""Stands for losses that the log knows of by their number only. Nobody knows when they happened."""


class SlotFacts(NamedTuple):
    """The newest small facts of a slot."""

    failures: Failures
    """k, the highest ever recorded, void records included: a crash never loses count."""
    lineage: Lineage
    policy_state: bytes
    exact_epoch: Epoch | None = None
    """The epoch as of whose end the committed frames hold the whole state, where they do."""
    epoch: Epoch | None = None
    """The epoch of the record that says so; None where there is none."""
    divergence: float = math.inf
    """See :attr:`SlotCommit.divergence_after`: as of the end of ``epoch``."""
    theta: float = math.inf
    """See :attr:`SlotCommit.theta`: in force since; unlimited where nothing is recorded."""
    under: str = ""
    """See :attr:`SlotCommit.under`."""
    items_at_risk: float = 0.0
    """See :attr:`SlotCommit.items_at_risk`."""


class CompleteSnapshot(NamedTuple):
    """A snapshot that a query can go back to."""

    number: SnapshotNumber
    epoch: Epoch
    """Its parts hold the states as of the end of this epoch."""
    items: dict[str, FrameRef]
    """Feedback items in flight to each slot, by slot key."""
