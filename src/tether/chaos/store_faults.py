"""A backup store that fails, stalls, tears or tells old news, or kills its user, where told to."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.backup.commitlog import CommitLog, older_half
from tether.backup.local_commits import LOG
from tether.chaos.faults import due, strike
from tether.core.errors import BackupError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.commitcodec import LogEnd
    from tether.backup.commits import CommitRecord
    from tether.backup.frames import Frame, FrameHeader, FrameRef
    from tether.backup.protocol import BackupStore
    from tether.chaos.faults import Action, Fault, Point


def with_trouble(
    store: BackupStore, faults: Sequence[Fault], url: str, *, points: Collection[Point]
) -> BackupStore:
    """The store itself, unless faults are meant for it.

    Args:
        store: The store.
        faults: All faults of a query.
        url: Where the store is; only a directory can be torn or stale.
        points: Those at which this user of the store is struck.
    """
    meant = [fault for fault in faults if fault.point in points]
    return TroubledStore(store, meant, url) if meant else store


class TroubledStore:
    """A real store, struck at three of its verbs; all others are its own.

    Args:
        store: The real one.
        faults: Faults at the store's points.
        url: Where it is.
    """

    def __init__(self, store: BackupStore, faults: Sequence[Fault], url: str) -> None:
        self._store, self._faults, self._url = store, tuple(faults), url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(
        self, header: FrameHeader, parts: Mapping[str, Sequence[pa.RecordBatch]]
    ) -> FrameRef:
        """Write a frame, or fail to, or half of it."""
        acts = self._meet("store-append", header.slot, header.epoch, header.operator)
        ref = self._store.append(header, parts)
        if "tear" in acts:
            os.truncate(self._directory() / ref.name, ref.offset + ref.length // 2)
        return ref

    def read(self, ref: FrameRef) -> Frame:
        """Read a frame, late or not at all."""
        self._meet("store-read")
        return self._store.read(ref)

    def append_commit(self, record: CommitRecord) -> LogEnd:
        """Commit, late or not at all."""
        self._meet("store-commit", epoch=record.epoch)
        return self._store.append_commit(record)

    def read_commits(self) -> CommitLog:
        """The commit log, or what it was a while ago."""
        if "stale" not in self._meet("store-read"):
            return self._store.read_commits()
        return older_half((self._directory() / LOG).read_bytes())

    def _meet(
        self, point: Point, slot: int = -1, epoch: int = 1 << 62, operator: str = ""
    ) -> set[Action]:
        acts: set[Action] = set()
        for fault in due(self._faults, point, slot, epoch, operator):
            acts.add(fault.action)
            if fault.action in ("kill", "executor"):
                strike(fault)
            if fault.action == "stall":
                time.sleep(fault.seconds)
            if fault.action == "fail":
                raise BackupError(
                    f"The backup store failed on purpose at {point}.",
                    why="A fault of a test or a drill struck it.",
                    do="Nothing: it was meant.",
                )
        return acts

    def _directory(self) -> Path:
        if "://" in self._url:
            raise BadValueError(
                f"{self._url} cannot be torn or stale by a fault.",
                why="Only the files of a directory can.",
                do="Put tether.testing.proxy in front of an object store.",
            )
        return Path(self._url.removeprefix("file:"))
