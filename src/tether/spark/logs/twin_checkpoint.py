"""The checkpoint of a twin: a copy of the query's, cut at a snapshot, that gets the same epochs again.

Spark starts a stream with the newest entry of ``offsets``. So the copy holds those of the snapshot and
of the epoch after it, and a source's list of files up to there. That epoch then has the rows that it
had. Those after it Spark cuts again: with a limit per epoch as before, else as large as it finds it.
Several epochs can be laid as one: the offsets of the snapshot are then those before its number.
Each is compared with the query's own log before anything is made of it. Where it differs, the query's
entry is laid in place of the twin's, and the stream starts again with that.
"""

from __future__ import annotations

import json
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import TetherError
from tether.core.ids import Epoch, epoch_after, epoch_before
from tether.spark.logs.checkpoint import SparkCheckpoint, last_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class CutEpoch(msgspec.Struct, frozen=True):
    """How the query cut an epoch."""

    epoch: Epoch
    entry: bytes
    """Spark's entry of ``offsets``."""
    rows: list[Any]
    """What identifies its rows; see :meth:`SparkCheckpoint.rows_of`."""


def as_one(cuts: Sequence[CutEpoch]) -> CutEpoch:
    """Successive epochs as a single one, with the number and the end of the last.

    Example:
        >>> as_one([CutEpoch(Epoch(4), b"4", [[10, ["a"]]]), CutEpoch(Epoch(5), b"5", [[20, ["b"]]])])
        CutEpoch(epoch=5, entry=b'5', rows=[[20, ['a', 'b']]])
    """
    *_, last = cuts
    files = [sorted(chain.from_iterable(each)) for each in zip(*map(_files, cuts), strict=True)]
    rows = [[end, given] for (end, _), given in zip(last.rows, files, strict=True)]
    return CutEpoch(last.epoch, last.entry, rows)


def _files(cut: CutEpoch) -> list[list[str]]:
    return [files for _, files in cut.rows]


def cut_epochs(checkpoint: SparkCheckpoint, epochs: Iterable[Epoch]) -> dict[Epoch, CutEpoch]:
    """How the query cut some epochs.

    Raises:
        TetherError: Spark has forgotten one of them.
    """
    found = {}
    for epoch in epochs:
        try:
            entry = checkpoint.entry("offsets", epoch)
            found[epoch] = CutEpoch(epoch, entry, checkpoint.rows_of(epoch))
        except FileNotFoundError as error:
            raise TetherError(
                f"What the rows of epoch {epoch} were is not known any more.",
                why="Spark's checkpoint keeps the offsets of "
                "spark.sql.streaming.minBatchesToRetain epochs, and this one is gone.",
                do="Let Spark keep more epochs, or take snapshots more often.",
            ) from error
    return found


class TwinCheckpoint(SparkCheckpoint):
    """A checkpoint directory that belongs to a twin, below the query's own.

    Args:
        checkpoint: The query's.
        compact_every: Spark joins a list of files at an interval of entries.
    """

    def __init__(self, checkpoint: str, compact_every: int = 10) -> None:
        self.url = f"{checkpoint.rstrip('/')}/tether/twin"
        super().__init__(self.url)
        self._query, self._compact_every = SparkCheckpoint(checkpoint), compact_every

    def make(self, snapshot: Epoch, as_one: CutEpoch | None = None) -> None:
        """Copy what a stream needs whose next epoch is the one after a snapshot.

        Args:
            snapshot: The epoch of the snapshot.
            as_one: Several epochs since then, which are to come as one of this number.

        Raises:
            TetherError: It is not all there any more.
        """
        self.remove()
        first = epoch_after(snapshot)
        self._query.check(first)
        self._put("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        next_one = first if as_one is None else as_one.epoch
        if snapshot >= 0:
            self._put(f"commits/{next_one - 1}", self._query.entry("commits", snapshot))
            self._put(f"offsets/{next_one - 1}", self._query.entry("offsets", snapshot))
        for number, offset in enumerate(self._query.offsets(next_one)):
            self._copy_source(number, last_list(offset))
        self._put(f"offsets/{next_one}", self._query.entry("offsets", next_one))

    def lay(self, cut: CutEpoch) -> None:
        """Let Spark's next epoch be the query's own, where it would have cut another.

        The epoch before is the last that the twin has committed.
        """
        before = self.offsets(epoch_before(cut.epoch)) if cut.epoch else []
        self._cut("commits", cut.epoch - 1)
        self._cut("offsets", cut.epoch - 1)
        for number, (end, files) in enumerate(cut.rows):
            if (last := last_list(end)) is not None:
                start = last_list(before[number]) if number < len(before) else None
                self._lay_files(f"sources/{number}", -1 if start is None else start, last, files)
        self._put(f"offsets/{cut.epoch}", cut.entry)

    def remove(self) -> None:
        """Remove all of it."""
        if self._fs.exists(self._root):
            self._fs.rm(self._root, recursive=True)

    def _copy_source(self, number: int, last: int | None) -> None:
        """Copy a source's own log: all of it, or of a list of files what came up to ``last``."""
        folder = f"sources/{number}"
        if last is None:
            for _, _, file in self._query.entries(folder):
                name = file.rsplit("/", 1)[-1]
                if not name.endswith(".crc"):
                    self._put(f"{folder}/{name}", self._fs.cat_file(file))
            return
        self._write_list(folder, range(last + 1), self._query.files_upto(folder, last))

    def _lay_files(self, folder: str, start: int, last: int, files: list[str]) -> None:
        known = self.files_upto(folder, start)
        self._cut(folder, start)
        self._write_list(folder, range(start + 1, last + 1), [*known, *files])

    def _write_list(self, folder: str, numbers: range, lines: list[str]) -> None:
        """Write entries of a list of files as Spark would have them."""
        by_number: dict[int, list[str]] = {}
        for line in lines:
            by_number.setdefault(int(json.loads(line)["batchId"]), []).append(line)
        for number in numbers:
            summed = (number + 1) % self._compact_every == 0
            upto = [n for n in sorted(by_number) if n <= number] if summed else [number]
            listed = [line for n in upto for line in by_number.get(n, [])]
            if listed or summed:
                name = f"{number}.compact" if summed else str(number)
                self._put(f"{folder}/{name}", "\n".join(["v1", *listed]).encode())

    def _put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._fs.pipe_file(path, data)
