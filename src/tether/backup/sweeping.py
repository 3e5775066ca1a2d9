"""Deletes frames that are not needed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.backup.names import epoch_of_name
from tether.core.errors import BackupUnreadableError
from tether.core.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.backup.frames import FrameHeader, FrameRef
    from tether.backup.history import CommitHistory
    from tether.backup.protocol import BackupStore

    FoundFrame = tuple[FrameRef, FrameHeader | BackupUnreadableError]


def sweep(
    store: BackupStore,
    history: CommitHistory,
    committed_epoch: Epoch,
    *,
    orphans: bool = False,
    found: Iterable[FoundFrame] | None = None,
) -> list[FrameRef]:
    """Drop old frames, and prune the commit records that named them.

    Args:
        store: Locked by the caller.
        history: The whole commit log, which is pruned.
        committed_epoch: The last epoch that Spark has committed.
        orphans: Also look through the store for frames that no record names, of tasks that failed
            or drivers that died. This lists the whole store, so it is meant for the start of a query.
        found: The list of frames, if it is known already.

    Returns:
        What was dropped.
    """
    refs = dict.fromkeys(history.droppable(committed_epoch))
    if orphans:
        listed = store.frames() if found is None else found
        refs.update(dict.fromkeys(_orphans(listed, history, committed_epoch)))
    store.drop(refs)
    history.prune(committed_epoch)
    return list(refs)


def _orphans(
    found: Iterable[FoundFrame], history: CommitHistory, committed_epoch: Epoch
) -> list[FrameRef]:
    named: dict[str, list[int]] = {}
    for ref in history.live_frames():
        named.setdefault(ref.name, []).append(ref.offset)
    orphans = []
    for ref, header in found:
        # A damaged section may contain several frames; keep it if a named one is in it.
        if any(ref.offset <= at < ref.offset + ref.length for at in named.get(ref.name, [])):
            continue
        if _outlived(ref, header, committed_epoch):
            orphans.append(ref)
    return orphans


def _outlived(
    ref: FrameRef, header: FrameHeader | BackupUnreadableError, committed_epoch: Epoch
) -> bool:
    if isinstance(header, BackupUnreadableError):
        epoch = epoch_of_name(ref.name)
        return epoch is not None and epoch <= committed_epoch
    return header.epoch <= committed_epoch
