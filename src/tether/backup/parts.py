"""Reads what exact recovery needs: parts of a snapshot, feedback in flight, logged rows.

Damage always raises an error: an exact policy must report that it cannot be exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.backup.names import slot_key
from tether.backup.protocol import unreadable_frame
from tether.backup.recovery import recover_chain, require_whole
from tether.core.ids import Epoch, Slot, epoch_after

if TYPE_CHECKING:
    from tether.backup.frames import Frame, FrameRef
    from tether.backup.history import CommitHistory
    from tether.backup.protocol import BackupStore
    from tether.backup.recorded import CompleteSnapshot


class RestoredPart(NamedTuple):
    """A slot's part of a snapshot: frames to apply in order, and feedback to put back in transit."""

    frames: list[Frame]
    feedback: Frame | None


def read_part(
    store: BackupStore,
    history: CommitHistory,
    operator: str,
    slot: Slot,
    snapshot: CompleteSnapshot,
) -> RestoredPart:
    """Read a slot's part of a complete snapshot.

    Raises:
        BackupUnreadableError: any of it is damaged or missing.
    """
    chain = recover_chain(store, history, operator, slot, epoch_after(snapshot.epoch))
    require_whole(
        chain, f"Snapshot {snapshot.number} cannot be restored: slot {slot} of {operator!r}."
    )
    ref = snapshot.items.get(slot_key(operator, slot))
    return RestoredPart(chain.frames, None if ref is None else _items(store, ref, operator, slot))


def read_rows(
    store: BackupStore,
    history: CommitHistory,
    operator: str,
    slot: Slot,
    *,
    after_epoch: Epoch,
    before_epoch: Epoch,
) -> list[Frame]:
    """Read the rows that were logged for a slot in the epochs between, oldest first.

    Raises:
        BackupUnreadableError: any of them is damaged or missing.
    """
    found = history.logged_rows(operator, slot, after_epoch, before_epoch)
    return [_items(store, ref, operator, slot) for _, ref in found]


def _items(store: BackupStore, ref: FrameRef, operator: str, slot: Slot) -> Frame:
    frame = store.read(ref)
    header = frame.header
    if (header.operator, header.slot, header.kind) != (operator, slot, "items"):
        is_one = f"a {header.kind} one of slot {header.slot} of {header.operator!r}"
        raise unreadable_frame(
            ref, f"It is not the frame of items that was committed but {is_one}."
        )
    return frame
