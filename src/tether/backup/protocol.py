"""The interface of backup stores; the rest of Tether uses nothing else of them."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

from tether.backup.framecodec import digest_of
from tether.backup.names import MANIFEST
from tether.core.errors import BackupError, BackupUnreadableError
from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.commitcodec import LogEnd
    from tether.backup.commitlog import CommitLog
    from tether.backup.commits import CommitRecord
    from tether.backup.frames import Frame, FrameHeader, FrameRef
    from tether.backup.manifest import Manifest
    from tether.backup.mark import Mark


class HeldLock(contextlib.AbstractContextManager["HeldLock"]):
    """The right to commit, held until ``release`` or the end of the ``with`` block."""

    @abstractmethod
    def check(self) -> None:
        """Raise unless the lock is still ours.

        Raises:
            BackupLockedError: it was lost; nothing may be committed any more.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the lock; does nothing if it has been released."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class BackupStore(Protocol):
    """A durable place for one query's backups.

    Slots' tasks ``append`` and ``read`` in any process, any number at a time. The driver alone,
    and only while it holds the ``lock``, commits, drops and writes the manifest.

    If the storage fails, every operation raises :class:`~tether.core.errors.BackupError` (or a
    subclass), with a cause that a user can act on.
    """

    def append(
        self, header: FrameHeader, parts: Mapping[str, Sequence[pa.RecordBatch]]
    ) -> FrameRef:
        """Write a frame; it is durable on return. A name is never used twice."""
        ...

    def read(self, ref: FrameRef) -> Frame:
        """Read a frame back, all of it checked.

        Raises:
            BackupUnreadableError: missing, torn or corrupt. (If the store cannot be read, for example
                because of missing rights, it raises plain ``BackupError``: the frame itself may be
                good.)
        """
        ...

    def frames(
        self, operator: str | None = None, slot: Slot | None = None
    ) -> Iterator[tuple[FrameRef, FrameHeader | BackupUnreadableError]]:
        """Every frame in the store, committed or not; only heads are read and checked."""
        ...

    def begin_commits(
        self, committed_epoch: Epoch, *, every_epoch: bool, gap: str = "", records: int = 0
    ) -> LogEnd:
        """Make the commit log ready to be written to, once it is known to be complete.

        Defects are repaired where that is possible. Before this call nothing of the log is changed, so a
        caller that refuses the log leaves it unchanged.

        Args:
            committed_epoch: The last epoch that Spark has committed.
            every_epoch: Whether every epoch leaves a record from now on.
            gap: What is missing in the log, where that is accepted. It is recorded permanently.
            records: The smallest possible number of records so far, missing ones included: their numbers
                are not used again.

        Returns:
            Where the log ends.
        """
        ...

    def keep_mark(self, mark: Mark) -> None:
        """Store the log's end in a second place: now, and after every record, before it counts."""
        ...

    def append_commit(self, record: CommitRecord) -> LogEnd:
        """Make a record durable; when this returns, what the record names counts.

        Returns:
            Where the log ends now.
        """
        ...

    def read_commits(self) -> CommitLog:
        """Read the commit log; damage is part of the result, and not raised."""
        ...

    def read_manifest(self) -> Manifest | None:
        """The manifest, or ``None`` if the store is empty.

        Raises:
            BackupUnreadableError: it is damaged, or missing where there are backups.
        """
        ...

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest: readers see the old one or the new one."""
        ...

    def drop(self, refs: Iterable[FrameRef]) -> None:
        """Delete frames that are not needed; missing ones are ignored."""
        ...

    def lock(self, owner: str) -> HeldLock:
        """Become the only driver on this store.

        Raises:
            BackupLockedError: another one is; the message says who.
        """
        ...

    def bytes_used(self) -> int:
        """Bytes that the store occupies."""
        ...


def require_lock(lock: HeldLock | None, what: str) -> None:
    """Refuse an operation of drivers without the lock.

    Raises:
        BackupLockedError: the lock was lost.
        BackupError: it was never taken through this store object.
    """
    if lock is None:
        raise BackupError(
            f"The store refused to {what}.",
            why="Only the holder of the store's lock may, and this store object does not hold it.",
            do="Call lock() on the same store object first.",
        )
    lock.check()


def unreadable_frame(ref: FrameRef, why: str) -> BackupUnreadableError:
    """The error for a frame that is missing."""
    return BackupUnreadableError(
        f"The backup frame in {ref.name} (bytes {ref.offset} to {ref.offset + ref.length}) "
        "cannot be read.",
        why=why,
        do="Nothing if recovery goes on with an older frame and a larger bound; else restore the "
        "backup directory from a copy.",
    )


def checked_bytes(ref: FrameRef, data: pa.Buffer | bytes) -> pa.Buffer | bytes:
    """Refuse bytes of another frame than the one that is referred to.

    Raises:
        BackupUnreadableError: they are of another frame, or of none.
    """
    if digest_of(data) != ref.digest:
        raise unreadable_frame(ref, "Another frame is in its place, or its head is damaged.")
    return data


def frame_exists(name: str) -> BackupError:
    """The error for a second frame under one name: an older one is never overwritten."""
    return BackupError(
        f"The backup frame {name} exists already.",
        why="A task attempt wrote two frames with one epoch and sequence number.",
        do="Raise the sequence with every frame, and give every attempt an id of its own.",
    )


def missing_manifest(place: str) -> BackupUnreadableError:
    """The error for a store with backups but without a manifest."""
    return BackupUnreadableError(
        f"The backup store {place} has no manifest.",
        why="It holds backups, but nothing says of which query and program.",
        do=f"Restore {MANIFEST} from a copy, or start again with an empty backup directory.",
    )
