"""A stream's durable log: files that are only appended to, and deleted whole.

Every file begins with a summary of all that is known, so that elder ones can go as soon as their items
are no longer wanted. A torn or spoilt end of the newest file is cut off; what was in it was never
acknowledged, or is told as lost.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import threading
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.files import (
    append_durably,
    make_folder,
    open_file,
    opened,
    sync_folder,
    write_all,
)
from tether.sources.gateway.errors import StoreFailedError
from tether.sources.gateway.facts import Facts
from tether.sources.gateway.records import Entry, SavedRun, body_offset, packed, scan
from tether.sources.gateway.syncs import SyncedFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

SEGMENT_BYTES = 64 << 20
_NAME = re.compile(r"segment-(\d{20})\.log$")


class Place(NamedTuple):
    """The place of a run's rows: in a batch, which may hold rows of other runs too."""

    segment: Path
    offset: int
    nbytes: int
    start: int = 0
    """Index of its first row in the batch."""


class FoundEntry(NamedTuple):
    """An entry as it was read back, and where the batches of its runs lie."""

    entry: Entry
    places: list[Place]


class Written:
    """An entry that has been written, and may be durable or not yet."""

    __slots__ = ("done", "entry", "file", "places", "start", "void")

    def __init__(self, entry: Entry, places: list[Place], start: int, file: SyncedFile) -> None:
        self.entry, self.places, self.start, self.file = entry, places, start, file
        self.done = self.void = False
        """Whether nobody needs to wait for it any more; and whether that is because it failed."""


class _Segment(NamedTuple):
    path: Path
    number: int
    """Its place in the order of files."""


class SegmentLog:
    """The log of one stream; used by several threads.

    Args:
        folder: Its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file: SyncedFile | None = None
        """The newest file, where it is open."""
        self._size = 0
        self._segments: list[_Segment] = []
        self.facts = Facts()
        """All that is durable. Changes under the log's own lock."""
        self._sizes: dict[int, int] = {}
        self._elder_bytes = 0
        self._newest: dict[int, int] = {}
        """For each file, the newest number of an item in it."""
        self.cut_bytes = 0
        """What had to be cut off when the log was opened."""
        self.damaged: list[str] = []
        """Files before the newest that could not be read to their end."""
        self.missing = 0
        """Numbers between entries of the newest life that no entry has: never to be told as durable."""
        self.torn = False
        """Whether something was taken back that still stands in the newest file."""
        self.syncs = 0
        self._waiting: list[Written] = []
        """Written and not yet durable, in order."""
        self.written = 0
        """Newest item that has been written; up to ``facts.backed_up`` they are durable."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return self._elder_bytes + self._size

    # ---- opening ---------------------------------------------------------------------------------

    def read(self) -> list[FoundEntry]:
        """Everything that is there and whole, oldest first; a torn end is cut off."""
        make_folder(self._folder)
        names = sorted(path for path in self._folder.iterdir() if _NAME.search(path.name))
        self._segments = [_Segment(path, int(_NAME.search(path.name)[1])) for path in names]  # type: ignore[index]
        found: list[FoundEntry] = []
        for segment in self._segments:
            newest = segment is self._segments[-1]
            end, size = self._read_one(segment, found)
            self._sizes[segment.number] = end
            self._elder_bytes += end
            if newest and (end < size or not self.facts.clean):
                self.cut_bytes = size - end
                with opened(segment.path, os.O_WRONLY) as descriptor:
                    os.ftruncate(descriptor, end)
                    # A killed process may have written what it had not waited for.
                    os.fsync(descriptor)
            elif end < size:
                self.damaged.append(segment.path.name)
        return found

    def _read_one(self, segment: _Segment, found: list[FoundEntry]) -> tuple[int, int]:
        end = 0
        with opened(segment.path, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            if not size:
                return 0, 0
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as data, memoryview(data) as view:
                for one in scan(view):
                    places = _places(segment.path, one.body, one.entry.runs)
                    self._note(segment.number, one.entry.runs)
                    found.append(FoundEntry(one.entry, places))
                    self._look_for_holes(one.entry)
                    self.facts.add(one.entry)
                    end = one.end
        return end, size

    def _look_for_holes(self, entry: Entry) -> None:
        if (entry.life or 0) > self.facts.life:  # what was missing until then has been told
            self.missing = 0
        durable = max(self.facts.backed_up, self.facts.committed, entry.committed or 0)
        for first, last in _numbers(entry):
            self.missing += max(0, first - durable - 1)
            durable = max(durable, last)

    def begin(self, entry: Entry) -> None:
        """Start a new file with all that is known, and one more entry: durable when this returns."""
        with self._lock:
            self.facts.add(entry)
            self.written = self.facts.backed_up
            self._roll()

    # ---- writing ---------------------------------------------------------------------------------

    def append(self, entry: Entry, body: Sequence[pa.Buffer] = ()) -> list[Place]:
        """Make an entry durable.

        Args:
            entry: What happened.
            body: The batches of its runs, in order.

        Raises:
            StoreFailedError: The disk did not take it; nothing of it is left.
        """
        return self.sync(self.write(entry, body))

    def write(self, entry: Entry, body: Sequence[pa.Buffer] = ()) -> Written:
        """Append an entry that is durable only after ``sync``; others may be written meanwhile.

        Args:
            entry: What happened.
            body: The batches of its runs, in order.

        Raises:
            StoreFailedError: The disk did not take it, or had to give up items that come before its own;
                nothing of it is left.
        """
        record, numbers = packed(entry, body), _numbers(entry)
        with self._lock:
            if self._size > SEGMENT_BYTES:
                with contextlib.suppress(StoreFailedError):  # the next one tries again
                    self._land(self._waiting)
                    if not self.torn:
                        self._roll()
            # Looked at last: a file's end may have had to give up what was waiting for the disk.
            if self._file is None or not self._follows(entry, numbers) or not self._mended():
                raise self._failed(OSError(errno.EIO, os.strerror(errno.EIO)))
            start = self._size
            try:
                write_all(self._file.descriptor, record)
            except OSError as error:
                self._cut(start)
                raise self._failed(error) from error
            self._size = start + sum(len(part) for part in record)
            here = self._segments[-1]
            places = _places(here.path, start + body_offset(record), entry.runs)
            written = Written(entry, places, start, self._file)
            self._waiting.append(written)
            self._note(here.number, entry.runs)
            if numbers:
                self.written = max(self.written, numbers[-1][1])
        return written

    def sync(self, written: Written) -> list[Place]:
        """Wait for the disk: this entry is durable then, and all that were written before it.

        Several may wait at a time: what one sync costs is mostly waiting.

        Raises:
            StoreFailedError: The disk did not take it; nothing of it is left, nor of later ones.
        """
        error: OSError | None = None
        if not written.done:
            try:
                written.file.sync()
            except OSError as raised:
                error = raised
        with self._lock:
            if error is not None:  # if this one is durable all the same, a later one may be meant
                self._give_up()
            if not written.done:
                self._land(self._waiting[: self._waiting.index(written) + 1], synced=True)
        if written.void:
            raise self._failed(error or OSError(errno.EIO, os.strerror(errno.EIO))) from error
        return written.places

    def _land(self, waiting: Sequence[Written], *, synced: bool = False) -> None:
        """Entries are durable, in order; without any, what has been cut off is gone for good."""
        waiting = list(waiting)
        if not synced and self._file is not None:
            try:
                self._file.sync()
            except OSError as error:
                self._give_up()
                raise self._failed(error) from error
        self.syncs += bool(waiting)
        for one in waiting:
            self.facts.add(one.entry)
            one.done = True
        del self._waiting[: len(waiting)]

    def _give_up(self) -> None:
        """What waits for the disk is lost to it: take it back."""
        for one in self._waiting:
            one.done = one.void = True
        if self._waiting:
            self._cut(self._waiting[0].start)
            self._waiting.clear()
        if self._file is not None:
            self._file.forgive()
        self.written = self.facts.backed_up

    def _follows(self, entry: Entry, numbers: Sequence[tuple[int, int]]) -> bool:
        """Whether all numbers before an entry's own are written, or processed and dropped."""
        done = max(self.written, self.facts.committed, entry.committed or 0)
        return not numbers or numbers[0][0] <= done + 1

    def _cut(self, size: int) -> None:
        """Take back what is written from an offset on."""
        self._size, self.torn = size, True
        self._mended()

    def _mended(self) -> bool:
        """Whether the file ends where it should; if not, and the disk lets us, it does now."""
        if self.torn and self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.descriptor, self._size)
                os.lseek(self._file.descriptor, self._size, os.SEEK_SET)
                self.torn = False
        return not self.torn

    def check_end(self) -> None:
        """Refuse new items while what was taken back still stands in the file.

        After a crash it would be read as durable, under numbers that other items have by then.

        Raises:
            StoreFailedError: The disk does not even cut a file.
        """
        if self.torn:
            with self._lock:
                if not self._mended():
                    raise self._failed(OSError(errno.EIO, os.strerror(errno.EIO)))

    def _failed(self, error: OSError) -> StoreFailedError:
        return StoreFailedError(
            "The gateway's store does not take what must be durable.",
            why=f"{self._folder}: {error.strerror or error}.",
            do="Free space on that disk; producers' items are refused until then, none is lost.",
        )

    def drop(self, upto: int) -> None:
        """Delete files of which no item is wanted any more; the newest file always stays."""
        with self._lock:
            while len(self._segments) > 1:
                first = self._segments[0]
                if self._newest.get(first.number, 0) > upto:
                    return
                # Readers may still have it open; the kernel keeps it for them.
                first.path.unlink(missing_ok=True)
                self._newest.pop(first.number, None)
                self._elder_bytes -= self._sizes.pop(first.number, 0)
                self._segments.pop(0)

    def close(self) -> None:
        """Let go of the newest file."""
        with self._lock:
            with contextlib.suppress(StoreFailedError):
                self._land(self._waiting)
            if self._file is not None:
                self._file.close()
                self._file = None

    def _roll(self) -> None:
        number = self._segments[-1].number + 1 if self._segments else 1
        path = self._folder / f"segment-{number:020d}.log"
        record = packed(self.facts.summary())
        try:
            descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                append_durably(descriptor, record)
                sync_folder(self._folder)
                file = SyncedFile(path, descriptor)
            except BaseException:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise StoreFailedError(
                "The gateway's store cannot be written to.",
                why=f"{path}: {error.strerror or error}.",
                do="Free space on that disk, or give the gateway's user the right to write there.",
            ) from error
        if self._file is not None:
            self._file.close()
            self._sizes[self._segments[-1].number] = self._size
            self._elder_bytes += self._size
        self._file, self._size = file, sum(len(part) for part in record)
        self._segments.append(_Segment(path, number))

    def _note(self, segment: int, runs: Sequence[SavedRun]) -> None:
        if runs:
            last = runs[-1].number + runs[-1].items - 1
            self._newest[segment] = max(last, self._newest.get(segment, 0))


def _numbers(entry: Entry) -> list[tuple[int, int]]:
    """First and last number of each run and boundary, in order."""
    numbers = [(run.number, run.number + run.items - 1) for run in entry.runs]
    numbers += [(boundary.number, boundary.number) for boundary in entry.boundaries]
    return sorted(numbers)


def _places(segment: Path, offset: int, runs: Sequence[SavedRun]) -> list[Place]:
    places: list[Place] = []
    before = 0
    for run in runs:
        if run.nbytes:
            offset += places[-1].nbytes if places else 0
            places.append(Place(segment, offset, run.nbytes))
        else:
            places.append(places[-1]._replace(start=places[-1].start + before))
        before = run.items
    return places
