"""Taking Spark's own checkpoint back to an earlier epoch, so that it reads the stream again from there.

Spark begins a stream with the newest entry of ``offsets``: if ``commits`` has it, with the epoch after
it; if not, with that epoch once more. So to read from epoch r on, entries of ``offsets`` above r and of
``commits`` from r on are removed. Epoch r then has the same rows as before. The epochs after it are cut
again: by sources with a limit per epoch as before, by others as large as they find it.

Sources of files keep a list of the files that each epoch was given. Were it left longer than the
offsets, Spark would give all those files in one epoch; so it is cut too, where that can be done.

All of it can be done twice. What is being done is told first in a file of our own, so that a driver
that dies in the middle finds it when it is started again.
"""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import fsspec

from tether.core.errors import QueryRefusedError, TetherError
from tether.core.ids import Epoch, epoch_after, epoch_before
from tether.sql.checkpoints import settle_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT_SECONDS = 60.0
"""Longest time, in seconds, that Spark's own entry of an epoch is waited for."""

_ENTRY = re.compile(r"\.?(?P<number>\d+)(?P<compact>\.compact)?(\.crc)?$")
_NOTE = "tether/rewinding.json"


class SparkCheckpoint:
    """The checkpoint directory of a query.

    Args:
        url: As Spark was given it; anything that fsspec can open.
    """

    def __init__(self, url: str) -> None:
        settle_checkpoints()
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise QueryRefusedError(
                f"The checkpoint {url} cannot be changed.",
                why=f"To go back, barrier has to shorten Spark's logs there. {error}",
                do="Use a local directory or another file system that fsspec can open, or another "
                "policy.",
            ) from error

    # ---- going back ----------------------------------------------------------------------------

    def check(self, read_from: Epoch) -> None:
        """Make sure that Spark can be taken back to an epoch.

        Raises:
            TetherError: Spark has forgotten what its rows were.
        """
        needed = [read_from] if read_from == 0 else [read_from - 1, read_from]
        kept = {number for number, _, _ in self.entries("offsets")}
        if not kept.issuperset(needed):
            raise TetherError(
                f"The query cannot go back to epoch {read_from}.",
                why="Spark's checkpoint has no offsets of it any more: it keeps those of "
                "spark.sql.streaming.minBatchesToRetain epochs.",
                do="Start again with an empty backup directory and checkpoint; take snapshots more "
                "often, or let Spark keep more epochs.",
            )

    def announce(self, read_from: Epoch) -> None:
        """Say durably what is about to be done."""
        self._fs.makedirs(self._path("tether"), exist_ok=True)
        partial = self._path(f"{_NOTE}.writing")
        self._fs.pipe_file(partial, json.dumps({"read_from": read_from}).encode())
        self._fs.mv(partial, self._path(_NOTE))

    def announced(self) -> Epoch | None:
        """The epoch that an earlier driver was going back to when it died, if it was."""
        try:
            note = json.loads(self._fs.cat_file(self._path(_NOTE)))
        except FileNotFoundError:
            return None
        return Epoch(note["read_from"])

    def go_back(self, read_from: Epoch) -> None:
        """Let Spark's next epoch be ``read_from``, with the rows that it had."""
        self._cut("commits", read_from - 1)
        for number, offset in enumerate(self.offsets(read_from)):
            if (last := last_list(offset)) is not None:
                self._cut_files(f"sources/{number}", last)
        self._cut("offsets", read_from)

    def done(self) -> None:
        """All is done."""
        self._fs.rm_file(self._path(_NOTE))

    def rows_of(self, epoch: Epoch) -> list[Any]:
        """Identifies the rows of an epoch, given the one before it: where sources end, and their files.

        Two runs of an epoch for which this is the same were given the same rows.
        """
        before = self.offsets(epoch_before(epoch)) if epoch else []
        ends = self.offsets(epoch)
        return [
            [end, self._files(f"sources/{number}", last_list(start), last_list(end))]
            for number, (end, start) in enumerate(zip_longest(ends, before))
        ]

    def next_epoch(self) -> Epoch:
        """The epoch that Spark starts with."""
        newest = Epoch(max((number for number, _, _ in self.entries("offsets")), default=-1))
        return epoch_after(newest) if newest < 0 or self.committed(newest) else newest

    def committed(self, epoch: Epoch) -> bool:
        """Whether Spark has committed an epoch."""
        self._fs.invalidate_cache(self._path("commits"))
        return bool(self._fs.exists(self._path(f"commits/{epoch}")))

    def entry(self, folder: str, number: int) -> bytes:
        """An entry of one of Spark's logs, as it is."""
        return bytes(self._fs.cat_file(self._path(f"{folder}/{number}")))

    def files_upto(self, folder: str, last: int) -> list[str]:
        """All files that a source of files has given up to one of its lists, as these have them.

        Raises:
            TetherError: Lists are missing from it.
        """
        found = {
            n: compact for n, compact, file in self.entries(folder) if not file.endswith(".crc")
        }
        sums = [number for number, compact in found.items() if compact]
        first = max((number for number in sums if number <= last), default=0)
        later = [number for number in sums if number > last]
        if not later and not found.keys() >= set(range(first, last + 1)):
            raise TetherError(
                "The list of files that were read is not whole any more.",
                why=f"Of {folder}, entries between {first} and {last} are missing.",
                do="Let Spark keep them longer: spark.sql.streaming.fileSource.log.cleanupDelay.",
            )
        return self._files(folder, None, last)

    # ---- inside --------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def entries(self, folder: str) -> Iterator[tuple[int, bool, str]]:
        """Numbers of a log's entries, whether they sum up those before, and their files."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return
        self._fs.invalidate_cache(path)
        for file in self._fs.ls(path, detail=False):
            match = _ENTRY.match(file.rsplit("/", 1)[-1])
            if match is not None:
                yield int(match["number"]), match["compact"] is not None, file

    def _cut(self, folder: str, last: int) -> None:
        found = list(self.entries(folder))
        # The newest first: what is left after a crash is a log that ends earlier.
        for number, _, file in sorted(found, reverse=True):
            if number > last:
                self._fs.rm_file(file)

    def offsets(self, epoch: Epoch) -> list[Any]:
        """The position in each source at which the epoch ends."""
        lines = self._fs.cat_file(self._path(f"offsets/{epoch}")).decode().splitlines()
        offsets = []
        for line in lines[2:]:  # after the version and Spark's own settings
            try:
                offsets.append(json.loads(line))
            except ValueError:
                offsets.append(line)
        return offsets

    def _files(self, folder: str, after: int | None, last: int | None) -> list[str]:
        """The files, as Spark's list has them, that a source of files gave between two places."""
        if last is None:
            return []
        first = -1 if after is None else after
        lines: set[str] = set()
        for number, compact, file in self.entries(folder):
            wanted = number > first and (compact or number <= last)
            if wanted and not file.endswith(".crc"):
                lines.update(self._fs.cat_file(file).decode().splitlines()[1:])  # after the version
        listed = [(json.loads(line)["batchId"], line) for line in lines]
        return sorted(line for at, line in listed if first < at <= last)

    def _cut_files(self, folder: str, last: int) -> None:
        """Cut a source's list of files, if what is left of it is whole."""
        found = list(self.entries(folder))
        sums = [number for number, compact, _ in found if compact and number <= last]
        first = max(sums, default=0)
        if {number for number, _, _ in found}.issuperset(range(first, last + 1)):
            self._cut(folder, last)


def last_list(offset: Any) -> int | None:
    """Number of the last list of files up to an offset; None of a source that has no such lists."""
    if isinstance(offset, dict) and set(offset) == {"logOffset"}:
        return int(offset["logOffset"])
    return None
