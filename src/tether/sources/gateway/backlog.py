"""The items that a stream holds for its readers: in memory, and on disk where memory is short."""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tether.backup.files import opened, read_exactly
from tether.protocols.lost_items import MarkedRun
from tether.sources.gateway.records import SavedRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.sources.gateway.segments import Place

MESSAGE_BYTES = 1 << 20
"""Small batches go to a reader together, up to this size."""
SMALL_BYTES = 64 << 10
"""Smaller runs than this are saved as one batch: a copy costs less than a message of its own, for which
the saver would let go of Python's lock and wait for it again."""
TOGETHER_BYTES = 4 << 20
"""Most bytes of such runs in one batch."""


class HeldRun:
    """Items of one producer, numbered one after the other."""

    __slots__ = ("batch", "count", "first", "last", "nbytes", "number", "place", "producer")

    def __init__(
        self,
        number: int,
        producer: str,
        first: int,
        count: int,
        *,
        batch: pa.RecordBatch | None = None,
        place: Place | None = None,
    ) -> None:
        self.number, self.producer, self.first, self.count = number, producer, first, count
        self.last = number + count - 1
        self.batch, self.place = batch, place
        self.nbytes = 0 if batch is None else batch.get_total_buffer_size()

    def marked(self) -> MarkedRun:
        """The same without its rows."""
        return MarkedRun(self.producer, self.first, self.number, self.count)


class Backlog:
    """Runs in order of their numbers. The stream's lock guards it."""

    def __init__(self) -> None:
        self._runs: list[HeldRun] = []
        self._resident = 0
        """Index of the first run that may be in memory."""
        self.memory_bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: HeldRun) -> None:
        """Append a run; its numbers are above all others."""
        self._runs.append(run)
        if run.batch is not None:
            self.memory_bytes += run.nbytes

    def take_back(self) -> None:
        """Forget the newest run."""
        self.memory_bytes -= self._runs.pop().nbytes

    def after(self, number: int) -> list[HeldRun]:
        """Runs with numbers above this one."""
        return self._runs[self._index(number + 1) :]

    def between(self, first: int, last: int) -> list[HeldRun]:
        """Runs that have a number from ``first`` to ``last``."""
        start = self._index(first)
        stop = start
        while stop < len(self._runs) and self._runs[stop].number <= last:
            stop += 1
        return self._runs[start:stop]

    def drop(self, upto: int) -> None:
        """Forget runs all of whose numbers are at most this one."""
        count = self._index(upto + 1)
        for run in self._runs[:count]:
            self.memory_bytes -= run.nbytes
        del self._runs[:count]
        self._resident = max(0, self._resident - count)

    def evict(self, target_bytes: int) -> None:
        """Leave the oldest runs that are on disk to the disk, until memory is below a target."""
        while self.memory_bytes > target_bytes and self._resident < len(self._runs):
            run = self._runs[self._resident]
            if run.place is None:
                return
            if run.batch is not None:
                self.memory_bytes -= run.nbytes
                run.batch, run.nbytes = None, 0
            self._resident += 1

    def _index(self, number: int) -> int:
        """Index of the first run whose last number is at least this one."""
        return bisect_left(self._runs, number, key=lambda run: run.last)


def batches(
    runs: list[HeldRun], first: int, last: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of runs between two numbers, both included, in order."""
    read: tuple[Place | None, pa.RecordBatch | None] = (None, None)
    for run in runs:
        batch, at = run.batch, 0
        if batch is None:
            assert run.place is not None
            whole = run.place._replace(start=0)
            if read[0] != whole:
                read = (whole, _read(whole, schema))
            batch, at = read[1], run.place.start
        start = max(0, first - run.number)
        stop = min(run.count, last - run.number + 1)
        assert batch is not None
        yield (batch if stop - start == batch.num_rows else batch.slice(at + start, stop - start))


def together(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: a copy costs less than a message of its own for each.

    Example:
        >>> small = pa.record_batch({"k": [1, 2]})
        >>> [batch.num_rows for batch in together(iter([small, small, small]))]
        [6]
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        nbytes = part.get_total_buffer_size()
        if waiting and size + nbytes > MESSAGE_BYTES:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += nbytes
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


class PackedRuns(NamedTuple):
    """Runs as a log takes them: small ones in one batch, and those that follow each other as one."""

    saved: list[SavedRun]
    body: list[pa.Buffer]
    spots: list[tuple[int, int]]
    """For each run: the index of its batch in ``saved``, and its first row in it."""

    def placed(self, runs: list[HeldRun], places: list[Place]) -> None:
        """They are on disk now."""
        for run, (at, start) in zip(runs, self.spots, strict=True):
            place = places[at]
            run.place = place._replace(start=place.start + start) if start else place


def packed_runs(runs: list[HeldRun]) -> PackedRuns:
    """Pack runs for the log.

    Example:
        >>> first, second = (HeldRun(n, "p", n, 1, batch=pa.record_batch({"k": [n]})) for n in (1, 2))
        >>> packed = packed_runs([first, second])
        >>> [(run.number, run.items) for run in packed.saved], packed.spots
        ([(1, 2)], [(0, 0), (0, 1)])
    """
    packed = PackedRuns([], [], [])
    at = 0
    while at < len(runs):
        upto, nbytes = at + 1, runs[at].nbytes
        while (
            runs[upto - 1].nbytes < SMALL_BYTES
            and upto < len(runs)
            and nbytes + runs[upto].nbytes <= TOGETHER_BYTES
        ):
            nbytes += runs[upto].nbytes
            upto += 1
        held = [run.batch for run in runs[at:upto]]
        batch = held[0] if len(held) == 1 else pa.concat_batches(held)
        assert batch is not None
        packed.body.append(batch.serialize())
        _pack(runs[at:upto], len(packed.body[-1]), packed)
        at = upto
    return packed


def _pack(runs: list[HeldRun], nbytes: int, packed: PackedRuns) -> None:
    saved, spots = packed.saved, packed.spots
    begin = runs[0]
    items = 0
    for run in runs:
        if items and (
            run.producer != begin.producer
            or run.first != begin.first + items
            or run.number != begin.number + items
        ):
            saved.append(SavedRun(begin.number, begin.producer, begin.first, items, nbytes))
            begin, items, nbytes = run, 0, 0
        spots.append((len(saved), items))
        items += run.count
    saved.append(SavedRun(begin.number, begin.producer, begin.first, items, nbytes))


def _read(place: Place, schema: pa.Schema) -> pa.RecordBatch:
    buffer = pa.allocate_buffer(place.nbytes)
    with opened(place.segment, os.O_RDONLY) as descriptor:
        read_exactly(descriptor, memoryview(buffer).cast("B"), place.offset)
    return pa.ipc.read_record_batch(buffer, schema)
