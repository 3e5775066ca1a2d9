"""Keeps a feed beside the backups: lines appended to segments, or objects where there is no append.

Should writing fail, the query goes on and its feed stays in memory; the next try is made with the next
facts. Nothing here is ever waited for by an epoch.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tether.backup.files import make_folder, opened
from tether.backup.objectio import ObjectFolder
from tether.backup.places import local_path
from tether.core.errors import TetherError
from tether.core.ids import NEVER
from tether.observe.facts import Digest, EpochFigures, SlotsNow
from tether.observe.history import joined
from tether.observe.segments import FOLDER, KEPT_BYTES, SEGMENT_BYTES, SUFFIX, line_of, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tether.observe.facts import Fact, QueryFacts

SLOTS_SECONDS = 5.0
"""All slots are written down no more often than this, and at the end."""
WAITING = 20_000
"""Largest number of facts that wait while a store cannot be reached; then the oldest are dropped."""


class _Directory:
    """Segments as files."""

    pause = 0.5
    """Seconds between two writes."""
    segment_bytes = SEGMENT_BYTES

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, name: str, lines: bytes, *, sync: bool) -> None:
        make_folder(self._folder)
        with opened(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as descriptor:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            if sync:
                os.fsync(descriptor)

    def drop(self, kept: int) -> None:
        total = 0
        for path in sorted(self._folder.glob(f"*{SUFFIX}"), reverse=True):
            total += path.stat().st_size
            if total > kept:
                path.unlink(missing_ok=True)


class _Objects:
    """Segments as objects: there is no append, so a small one is put whole again and again."""

    pause = 10.0
    segment_bytes = SEGMENT_BYTES // 4

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._folder = ObjectFolder(f"{url.rstrip('/')}/{FOLDER}", options)
        self._name, self._content = "", b""

    def append(self, name: str, lines: bytes, *, sync: bool) -> None:  # noqa: ARG002 - it is, once put
        if name != self._name:
            self._name, self._content = name, b""
        self._content += lines
        self._folder.replace(name, self._content)

    def drop(self, kept: int) -> None:
        total, old = 0, []
        for name, size in sorted(self._folder.sizes().items(), reverse=True):
            total += size
            old += [name] if total > kept else []
        self._folder.delete(old)


class FeedLog:
    """Facts on their way to a place; ``write`` never waits, ``flush`` does the work.

    Args:
        url: The backup directory or URL; the feed is in a folder of its own there.
        options: Of the store's file system.
        run: Id of the query's run.
        query: Gives what the query is: with it every segment begins.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        run: str,
        query: Callable[[], QueryFacts | None],
    ) -> None:
        path = local_path(url)
        self._place = _Objects(url, options) if path is None else _Directory(path / FOLDER)
        self._run, self._query = run, query
        self._written = EpochFigures(at=0.0, epoch=NEVER, epochs=0)
        """Sums over all epochs that are written."""
        self._waiting: deque[Fact] = deque(maxlen=WAITING)
        self._began, self._number, self._bytes = time.time(), 0, 0
        self._slots: SlotsNow | None = None
        self._slots_at = self._flushed_at = -1e9
        self._writing = threading.Lock()
        self.trouble = ""
        """Why the last try to write failed, if it did."""

    def write(self, fact: Fact) -> None:
        """Keep a fact; returns at once."""
        if isinstance(fact, SlotsNow):
            self._slots = fact
        else:
            self._waiting.append(fact)

    def flush(self, *, last: bool = False) -> None:
        """Write what waits, if it is time to; at the end, all of it, durably."""
        with self._writing:
            now = time.monotonic()
            if not last and now - self._flushed_at < self._place.pause:
                return
            self._flushed_at = now
            try:
                self._flush(now, last=last)
                self.trouble = ""
            except (OSError, TetherError) as error:
                self.trouble = str(error)

    def _flush(self, now: float, *, last: bool) -> None:
        facts = list(self._waiting)
        slots = self._slots if last or now - self._slots_at > SLOTS_SECONDS else None
        if slots is not None:
            facts.append(slots)
        if not facts:
            return
        lines, number = b"".join(map(line_of, facts)), self._number
        if not self._bytes or self._bytes > self._place.segment_bytes:
            number += self._bytes > 0
            lines = b"".join(map(line_of, self._head())) + lines  # of all before these
            with contextlib.suppress(OSError, TetherError):
                self._place.drop(KEPT_BYTES - SEGMENT_BYTES)
        name = segment_name(self._began, self._run, number)
        self._place.append(name, lines, sync=last)
        self._bytes = len(lines) + (self._bytes if number == self._number else 0)
        self._number = number
        for _ in range(len(facts) - (slots is not None)):
            self._waiting.popleft()
        for fact in facts:
            if isinstance(fact, EpochFigures):
                self._written = joined(self._written, fact)
        if slots is not None:
            self._slots_at = now
            self._slots = None if self._slots is slots else self._slots

    def _head(self) -> list[Fact]:
        query, sums = self._query(), self._written
        if query is None:
            return []
        digest = Digest(
            at=time.time(),
            epochs=sums.epochs,
            rows_in=sums.rows_in,
            rows_out=sums.rows_out,
            backups=sums.backups,
            backup_bytes=sums.backup_bytes,
            changed=sums.changed,
            losses=sums.losses,
        )
        return [query, digest]
