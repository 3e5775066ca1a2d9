"""The parts of a backup: frames of a slot's state, and references to them.

A frame is one durable copy, often partial, of a slot's resident state. Its header contains its epoch and
how much it carries, so that recovery knows the cost of an unreadable frame.
"""

from typing import Annotated, Literal

import msgspec
import pyarrow as pa

from tether.core.ids import Epoch, Failures, FrameNumber, Lineage, Slot
from tether.policies.instructions import Cause

FrameKind = Literal["full", "partial", "items"]
"""``full``: a whole image. ``partial``: the entries that carried the divergence. ``items``: no state
but items for the slot, by channel: logged rows of an epoch, or the feedback items that were in
flight in a snapshot."""

Count = Annotated[int, msgspec.Meta(ge=0)]
StoredEpoch = Annotated[Epoch, msgspec.Meta(ge=0)]
StoredSlot = Annotated[Slot, msgspec.Meta(ge=0)]
StoredFailures = Annotated[Failures, msgspec.Meta(ge=0)]
Norm = Annotated[float, msgspec.Meta(ge=0)]


class FrameHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What can be known of a frame without reading its state.

    Example:
        >>> header = FrameHeader(
        ...     query="q", operator="count", slot=0, epoch=7, sequence=3, failures=0, kind="full",
        ...     cause="theta", attempt="5f0c", lineage="a1", divergence_before=12.0,
        ...     divergence_after=0.0, carried=12.0, entries=4, written_at=1.7e9)
        >>> header.kind, header.epoch
        ('full', 7)
    """

    query: str
    operator: str
    slot: StoredSlot
    epoch: StoredEpoch
    """The epoch whose task wrote the frame; only later epochs may recover from it."""
    sequence: Annotated[FrameNumber, msgspec.Meta(ge=0)]
    """Increases with every frame of a slot."""
    failures: StoredFailures
    """k: losses of resident state that the slot had recovered from when it wrote."""
    kind: FrameKind
    cause: Cause
    attempt: str
    """Unique id of the task attempt, so that no two attempts ever share a name."""
    lineage: Lineage
    """Id of the resident state that was copied; a recovery starts a new lineage."""
    divergence_before: Norm
    divergence_after: Norm
    """Distance between resident and durable state, in units of the divergence."""
    carried: Norm
    """Norm of what the frame saves relative to what was durable before: the most that the restored
    state can be wrong by when this frame alone is skipped."""
    entries: Count
    written_at: float
    """Unix seconds."""
    records: Count = 0
    """Number of records in the commit log when the frame's epoch began; a log with fewer has lost
    some."""


class Frame(msgspec.Struct, frozen=True):
    """A header and the state it describes: Arrow record batches by primitive name."""

    header: FrameHeader
    parts: dict[str, list[pa.RecordBatch]]


class FrameRef(msgspec.Struct, frozen=True):
    """A reference to a frame: its place below the store's root, and what must be found there.

    Example:
        >>> FrameRef(name="slots/count/0/x.log", offset=0, length=512).length
        512
    """

    name: str
    offset: Count
    length: Count
    digest: Count = 0
    """The checksum of its head, which covers that of the state. With it, another frame in the same
    place, of the same slot and length, is recognised. 0 where nothing can be read."""
