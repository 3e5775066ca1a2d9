"""Reads the frames that restore a slot, and the cost of damaged ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.frames import Frame, FrameRef
from tether.backup.protocol import unreadable_frame
from tether.core.errors import BackupUnreadableError
from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from tether.backup.commits import SlotCommit
    from tether.backup.history import CommitHistory
    from tether.backup.protocol import BackupStore


class RestoredChain(NamedTuple):
    """Frames to apply in order, oldest first, and the possible error from damaged ones.

    Why a frame may be skipped: each frame overwrites entries of the durable image. An image that lacks
    one frame differs by at most what that frame ``carried``, and later frames, which overwrite the same
    entries in both, only bring the two closer.
    """

    frames: list[Frame]
    unreadable: list[tuple[FrameRef, str]]
    """What was skipped, and why. A lost commit record has the name ``commits``."""
    extra_bound: float
    """To be added to the bound; infinite if commit records that this chain depends on are lost."""


def require_whole(chain: RestoredChain, what: str, *, or_else: str = "") -> None:
    """Refuse a chain with skipped frames: an exact restore has no bound to widen.

    Args:
        chain: The chain.
        what: What needs the whole chain, for the error.
        or_else: What the user can do instead, if anything.

    Raises:
        BackupUnreadableError: names every frame that cannot be read.
    """
    if chain.unreadable:
        raise BackupUnreadableError(
            what,
            why="; ".join(f"{ref.name} at {ref.offset}: {why}" for ref, why in chain.unreadable),
            do="Restore the backup directory from a copy, or start again with an empty backup "
            f"directory and Spark checkpoint. {or_else}".rstrip(),
        )


def recover_chain(
    store: BackupStore, history: CommitHistory, operator: str, slot: Slot, before_epoch: Epoch
) -> RestoredChain:
    """Read the frames that restore a slot before it runs ``before_epoch``.

    Starts with the newest full frame that can be read. An unreadable partial frame is skipped. If a full
    frame is unreadable, the previous generation is the start, and the newer partial frames are applied
    to it. Either adds its ``carried`` to the bound.

    Raises:
        BackupUnreadableError: no generation has a readable start.
        BackupError: the store cannot be read now; its frames may still be good.
    """
    generations = history.generations(operator, slot, before_epoch)
    newest_first = [commit for generation in generations for commit in generation][::-1]
    frames: list[Frame] = []
    unreadable: list[tuple[FrameRef, str]] = []
    extra_bound = 0.0
    base: SlotCommit | None = None
    for commit in newest_first:
        assert commit.frame is not None
        try:
            frames.append(_read_checked(store, commit, operator, slot, before_epoch))
        except BackupUnreadableError as error:
            unreadable.append((commit.frame, error.why))
            extra_bound += commit.carried
            continue
        if commit.kind == "full":
            base = commit
            break
    if base is None and newest_first and newest_first[-1].kind == "full":
        raise _nothing_older(operator, slot, unreadable)
    for note in history.lost_since(base):
        unreadable.append((FrameRef("commits", 0, 0), note))
        extra_bound = math.inf
    return RestoredChain(frames[::-1], unreadable[::-1], extra_bound)


def _read_checked(
    store: BackupStore, commit: SlotCommit, operator: str, slot: Slot, before_epoch: Epoch
) -> Frame:
    """Read a frame, and check that it is the one in the commit log."""
    assert commit.frame is not None
    frame = store.read(commit.frame)
    header = frame.header
    if (header.operator, header.slot, header.kind) != (operator, slot, commit.kind):
        is_one = f"a {header.kind} one of slot {header.slot} of {header.operator!r}"
        raise unreadable_frame(
            commit.frame, f"It is not the frame that was committed but {is_one}."
        )
    if header.epoch >= before_epoch:
        raise unreadable_frame(
            commit.frame, f"It is of epoch {header.epoch}, which is yet to be run."
        )
    return frame


def _nothing_older(
    operator: str, slot: Slot, unreadable: list[tuple[FrameRef, str]]
) -> BackupUnreadableError:
    reasons = "; ".join(f"{ref.name} at {ref.offset}: {why}" for ref, why in unreadable)
    return BackupUnreadableError(
        f"Slot {slot} of {operator!r} cannot be restored.",
        why=f"No full backup of it can be read, and nothing older exists. {reasons}",
        do="Restore the backup directory from a copy, or start again with an empty backup "
        "directory and Spark checkpoint.",
    )
