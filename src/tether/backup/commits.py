"""Commit records: which frame of each slot counts from an epoch on.

A frame in the store does not count by itself: its task may have failed, or its epoch may be run again.
It counts only when a commit record names it.
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
    """One slot's entry in a commit record: its newest frame, if any, and its memory."""

    epoch: StoredEpoch
    """Epoch of the frame, or of the record where there is no frame."""
    frame: FrameRef | None = None
    kind: FrameKind | None = None
    """The frame's kind; ``None`` where there is no frame."""
    carried: Norm = 0.0
    """See :attr:`FrameHeader.carried`."""
    divergence_after: Norm
    """Distance of the resident state from all committed frames, this one included. There is no default,
    because 0 means that they hold the whole state, which must be stated explicitly."""
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
    later record says otherwise. The default promises nothing."""
    items_at_risk: Norm = 0.0
    """Largest number of items that wait unsaved from here on, and would be lost with the driver."""
    losses: tuple[LossRecord, ...] = ()
    """Losses found at the start of this epoch. They stay in the slot's account, even if the record
    becomes void."""
    losses_in_all: Count = 0
    """The number of losses that the slot's account must have now. If it has fewer, records are
    missing."""


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, tag="commit"):
    """Everything that an epoch commits.

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
    """Whether it adds to what its epoch committed before (a flush after the epoch), instead of replacing
    it (the epoch was run again)."""
    complete: Annotated[SnapshotNumber, msgspec.Meta(ge=0)] | None = None
    """Number of the snapshot that this record declares complete: the part of every slot, as of the
    end of ``epoch``, is durable and named here. It is written after the last part, perhaps many epochs
    later, and voids no other record."""
    heals: bool = False
    """Whether a twin has made all losses of these slots good: their accounts are empty, and k is 0."""
    items: dict[SlotKey, FrameRef] = {}
    """Frames of items. Where ``complete`` is set: the feedback items in flight to each slot in that
    snapshot. Else: the rows of ``epoch`` that were logged for each slot before it got them."""


class CommitSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """Everything of a commit log that is still needed, in one entry; written by compaction."""

    records: list[CommitRecord]
    failures: dict[SlotKey, StoredFailures]
    """Highest k ever seen for each slot, also in dropped records."""
    losses: dict[SlotKey, list[LossRecord]]
    """Every loss of each slot, also from dropped records."""
    gaps: list[tuple[int, str]]
    """Missing records: the number of ``records`` before them, and what was found instead."""
    every_epoch_from: StoredEpoch | None = None
    """The first epoch from which on every epoch leaves a record, if they do. Then Spark's own count of
    epochs shows whether records are missing at the end."""


LogEntry = CommitRecord | CommitSnapshot
