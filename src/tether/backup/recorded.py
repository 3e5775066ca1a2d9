"""What readers of a commit log get: facts about a slot, and snapshots."""

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
"""Stands for losses of which the log knows only that they happened, not when."""


class SlotFacts(NamedTuple):
    """The newest recorded facts of a slot."""

    failures: Failures
    """k: the highest number ever recorded, void records included, so that a crash does not reduce it."""
    lineage: Lineage
    policy_state: bytes
    exact_epoch: Epoch | None = None
    """The epoch at whose end the committed frames contain the whole state; None where they do not."""
    epoch: Epoch | None = None
    """The epoch of that record; None where there is none."""
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
