"""The frames of a commit log that recovery may still need. Pure: records in, names of frames out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.backup.commits import CommitRecord
    from tether.backup.frames import FrameRef


def needed(records: Sequence[CommitRecord], committed_epoch: Epoch) -> set[FrameRef]:
    """Frames that recovery may need when any epoch above ``committed_epoch`` is run.

    Args:
        records: Those that are not void, in log order.
        committed_epoch: The newest epoch that Spark has committed.
    """
    frames: dict[str, list[FrameRef]] = {}
    bases: dict[str, list[int]] = {}  # positions of the committed full frames
    for record in records:
        for key, commit in record.slots.items():
            if commit.frame is None:
                continue
            of_slot = frames.setdefault(key, [])
            if commit.kind == "full" and record.epoch <= committed_epoch:
                bases.setdefault(key, []).append(len(of_slot))
            of_slot.append(commit.frame)
    found: set[FrameRef] = set()
    for key, of_slot in frames.items():
        of_bases = bases.get(key, [])
        found.update(of_slot[of_bases[-2] if len(of_bases) > 1 else 0 :])
    return found | _needed_by_snapshot(records) | _needed_rows(records, committed_epoch)


def newest_complete(records: Sequence[CommitRecord]) -> CommitRecord | None:
    """The record of the newest complete snapshot."""
    complete = (record for record in reversed(records) if record.complete is not None)
    return next(complete, None)


def _needed_by_snapshot(records: Sequence[CommitRecord]) -> set[FrameRef]:
    """All frames that the newest complete snapshot is restored from."""
    snapshot = newest_complete(records)
    if snapshot is None:
        return set()
    chains: dict[str, list[FrameRef]] = {}
    for earlier in records:
        for key, commit in earlier.slots.items():
            if earlier.epoch <= snapshot.epoch and commit.frame:
                if commit.kind == "full":
                    chains[key] = []
                chains.setdefault(key, []).append(commit.frame)
    return {frame for chain in chains.values() for frame in chain} | set(snapshot.items.values())


def _needed_rows(records: Sequence[CommitRecord], committed_epoch: Epoch) -> set[FrameRef]:
    """Logged rows whose effect is in no committed backup of their slot."""
    saved: dict[str, int] = {}
    for record in records:
        for key, commit in record.slots.items():
            if commit.exact and commit.frame is not None and record.epoch <= committed_epoch:
                saved[key] = record.epoch
    return {
        frame
        for record in records
        if record.complete is None
        for key, frame in record.items.items()
        if record.epoch > saved.get(key, -1)
    }


def frames_of(record: CommitRecord) -> list[FrameRef]:
    """Frames that a record names: of states, and of rows or feedback items."""
    states = [commit.frame for commit in record.slots.values() if commit.frame is not None]
    return [*states, *record.items.values()]
