"""What the driver commits: which frame of each slot counts from an epoch on.

A frame that lies in the store proves nothing: its task may have failed, or its epoch may be run
again. It counts only when a commit record names it. So the commit log is the truth.
"""

import math
from typing import Annotated

import msgspec

from tether.backup.frames import Count, FrameKind, FrameRef, Norm, StoredEpoch, StoredFailures
from tether.core.ids import Failures, Lineage, SnapshotNumber
from tether.core.losses import LossRecord

SlotKey = Annotated[str, msgspec.Meta(pattern="/[0-9]{1,18}$")]
"""``"operator/slot"``, see :func:`slot_key`."""


class SlotCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's line of a commit record: its newest frame, if any, and its small facts."""

    epoch: StoredEpoch
    """Epoch of the frame, or of the record where there is no frame."""
    frame: FrameRef | None = None
    kind: FrameKind | None = None
    """The frame's kind; ``None`` where there is no frame."""
    carried: Norm = 0.0
    """See :attr:`FrameHeader.carried`."""
    divergence_after: Norm
    """Distance of the resident state from all committed frames, this one included. No default: zero
    claims that they hold the whole state, and such a claim must not be made by omission."""
    exact: bool = False
    """Whether the committed frames hold the whole state as of ``epoch``: no entry differs."""
    failures: StoredFailures = Failures(0)
    """k."""
    lineage: Lineage = Lineage("")
    policy_state: bytes = b""
    """The policy's own memory of the slot; opaque here."""
    under: str = ""
    """Name of the terms that ``theta`` and ``policy_state`` belong to."""
    theta: Norm = math.inf
    """θ in force: the most that losing the resident state costs, from the end of this epoch until a
    later record says otherwise. What is left out promises nothing."""
    items_at_risk: Norm = 0.0
    """Most items that wait unsaved from here on, and would be lost with the driver."""
    losses: tuple[LossRecord, ...] = ()
    """Losses that this epoch began with. They stay in the slot's account, whatever becomes of the
    record."""
    losses_in_all: Count = 0
    """How many losses the slot's account must have by now: if it has fewer, records are gone."""


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, tag="commit"):
    """All that an epoch made count.

    Example:
        >>> commit = SlotCommit(epoch=4, divergence_after=2.5)
        >>> CommitRecord(epoch=4, run="r", slots={"count/0": commit}).slots["count/0"].frame is None
        True
    """

    epoch: StoredEpoch
    run: str
    """Id of the driver run that wrote it."""
    slots: dict[SlotKey, SlotCommit]
    amends: bool = False
    """Whether it adds to what its epoch committed before (a flush after the epoch), rather than
    taking the place of it (the epoch was run again)."""
    complete: Annotated[SnapshotNumber, msgspec.Meta(ge=0)] | None = None
    """Number of the snapshot that this record declares complete: the part of every slot, as of the
    end of ``epoch``, is durable and named here. It is written when the last part is, perhaps many
    epochs later, and voids nothing."""
    heals: bool = False
    """Whether a twin has read again all that these slots had lost: their accounts are empty, k is 0."""
    items: dict[SlotKey, FrameRef] = {}
    """Frames of items. Where ``complete`` is set: the feedback items in flight to each slot in that
    snapshot. Else: the rows of ``epoch`` that were logged for each slot before it got them."""


class CommitSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """All of a commit log that can still matter, in one entry: what compaction writes."""

    records: list[CommitRecord]
    failures: dict[SlotKey, StoredFailures]
    """Highest k ever seen for each slot, also in records that are gone."""
    losses: dict[SlotKey, list[LossRecord]]
    """Every loss of each slot, also of records that are gone."""
    gaps: list[tuple[int, str]]
    """Lost records: how many of ``records`` came before, and what was found instead."""
    every_epoch_from: StoredEpoch | None = None
    """The epoch from which on every one leaves a record, if they do: then Spark's own count of
    epochs tells whether any are missing at the end."""


LogEntry = CommitRecord | CommitSnapshot
