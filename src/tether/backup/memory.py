"""A backup store in this process's memory: for tests, local pipelines and the simulator.

It follows the same protocol as the others, and stores frames in the same format, checksums included.
Nothing in it outlives the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.backup.commitcodec import BEGINNING, LogEnd
from tether.backup.commitlog import CommitLog
from tether.backup.framecodec import decode_frame, digest_of, encode_frame
from tether.backup.frames import FrameRef
from tether.backup.history import CommitHistory
from tether.backup.protocol import HeldLock, unreadable_frame
from tether.core.ids import Epoch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.commits import CommitRecord
    from tether.backup.frames import Frame, FrameHeader
    from tether.backup.manifest import Manifest
    from tether.backup.mark import Mark
    from tether.core.errors import BackupUnreadableError


class MemoryMark:
    """A :class:`tether.backup.mark.Mark` that outlives a store's driver, and not this process.

    Example:
        >>> store, mark = MemoryStore(), MemoryMark()
        >>> store.keep_mark(mark)
        >>> mark.read().number
        0
    """

    def __init__(self) -> None:
        self._end: LogEnd | None = None

    def write(self, end: LogEnd) -> None:
        """Tell how far the log goes now."""
        self._end = end

    def read(self) -> LogEnd | None:
        """How far the log went; ``None`` where nothing was ever told."""
        return self._end


class MemoryStore:
    """See :class:`tether.backup.protocol.BackupStore`.

    Example:
        >>> store = MemoryStore()
        >>> store.read_commits().history.last_epoch is None, store.bytes_used()
        (True, 0)
    """

    def __init__(self) -> None:
        self._frames: dict[str, tuple[FrameHeader, bytes]] = {}
        self._history, self._end = CommitHistory(), BEGINNING
        self._manifest: Manifest | None = None
        self._mark: Mark | None = None
        self.appended = 0
        """Frames written so far."""
        self.appended_bytes = 0

    def append(
        self, header: FrameHeader, parts: Mapping[str, Sequence[pa.RecordBatch]]
    ) -> FrameRef:
        """Write a frame."""
        data = b"".join(encode_frame(header, parts))
        name = f"{header.operator}/{header.slot}/{self.appended}"
        self._frames[name] = (header, data)
        self.appended += 1
        self.appended_bytes += len(data)
        return FrameRef(name, 0, len(data), digest_of(data))

    def read(self, ref: FrameRef) -> Frame:
        """Read a frame back, all of it checked."""
        if ref.name not in self._frames:
            raise unreadable_frame(ref, "It is not there.")
        return decode_frame(self._frames[ref.name][1])

    def damage(self, ref: FrameRef) -> None:
        """Leave only part of a frame, as a torn write does."""
        header, data = self._frames[ref.name]
        self._frames[ref.name] = (header, data[: len(data) // 2])

    def frames(
        self, operator: str | None = None, slot: Slot | None = None
    ) -> Iterator[tuple[FrameRef, FrameHeader | BackupUnreadableError]]:
        """Every frame, committed or not."""
        for name, (header, data) in list(self._frames.items()):
            if operator in (None, header.operator) and slot in (None, header.slot):
                yield FrameRef(name, 0, len(data), digest_of(data)), header

    def begin_commits(
        self, committed_epoch: Epoch, *, every_epoch: bool, gap: str = "", records: int = 0
    ) -> LogEnd:
        """The log is always ready."""
        del committed_epoch, every_epoch, gap, records
        return self._end

    def keep_mark(self, mark: Mark) -> None:
        """Store the log's end in a second place; see :meth:`BackupStore.keep_mark`."""
        mark.write(self._end)
        self._mark = mark

    def append_commit(self, record: CommitRecord) -> LogEnd:
        """Apply a record."""
        self._history.apply(record)
        self._end = LogEnd(self._end.number + 1, self._end.digest)
        if self._mark is not None:
            self._mark.write(self._end)
        return self._end

    def read_commits(self) -> CommitLog:
        """The content of the log, as a copy for its reader."""
        return self._log(self._history.fork())

    def for_slots(self) -> MemoryStore:
        """The same store, for readers that never write to the log: they share one history."""
        shared = _ForSlots.__new__(_ForSlots)
        shared.__dict__ = self.__dict__
        return shared

    def _log(self, history: CommitHistory) -> CommitLog:
        return CommitLog(
            history=history,
            damaged=[],
            lost=[],
            end=self._end,
            began=True,
            sound=True,
        )

    def read_manifest(self) -> Manifest | None:
        """The manifest, or None."""
        return self._manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace it."""
        self._manifest = manifest

    def drop(self, refs: Iterable[FrameRef]) -> None:
        """Delete frames that nothing needs."""
        for ref in refs:
            self._frames.pop(ref.name, None)

    def lock(self, owner: str) -> HeldLock:
        """A lock without effect: no other process can reach this store."""
        del owner
        return _Ours()

    def bytes_used(self) -> int:
        """Bytes of all frames."""
        return sum(len(data) for _, data in self._frames.values())


class _ForSlots(MemoryStore):
    def read_commits(self) -> CommitLog:
        """The current content of the log."""
        return self._log(self._history)


class _Ours(HeldLock):
    def check(self) -> None:
        """Does nothing: the lock is always held."""

    def release(self) -> None:
        """Nothing to give up."""
