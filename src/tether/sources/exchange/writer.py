"""One query's end of an exchange (DPC 2005, §3.4: SOutput).

An epoch that is given again is dropped, as what is there may have been read. Tentative rows are
withdrawn by the stable ones that come in their place, and the end of all corrections is marked.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from tether.backup.patience import patiently
from tether.core.errors import BackupError, BackupLockedError, StaleOutputError
from tether.sources.exchange.entries import Entry, RowId, Undone
from tether.sources.exchange.readers import trim_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.exchange.entries import DataFile, Kind
    from tether.sources.exchange.log import ExchangeLog

_log = logging.getLogger(__name__)
TRIM_EVERY = 50
"""Entries between two looks at what may be trimmed."""
REMEMBERED = 10_000
"""Epochs whose rows are compared when they come again; Spark itself forgets them much earlier."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one epoch, durable, and not yet named by any entry."""

    files: tuple[DataFile, ...] = ()
    digest: int = 0
    late: int = 0
    boundary: int | None = None
    """No row after these has a lower tuple time, as far as they tell."""
    failing: bool = False
    """Whether they were made while inputs were missing, and nothing was corrected."""


class ExchangeWriter:
    """Appends entries; one for each exchange and process.

    No lock is held: an entry's number can be taken once only, so of two writers one is told.

    Args:
        log: The exchange.
        query: Id of the query whose rows these are, the same after a restart.
        clock: Unix seconds.
    """

    def __init__(
        self, log: ExchangeLog, query: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.log, self._query, self._clock = log, query, clock
        self._mutex = threading.Lock()  # heartbeats come from a thread of their own
        self._next = log.first()
        self._stable: dict[int, tuple[int, int]] = {}
        self._stable_through = -1
        """Epochs up to here are there; of later ones ``_stable`` knows more."""
        self._early: set[int] = set()
        self._correcting = False
        """Whether corrections have begun and have not ended."""
        self._last: RowId | None = None
        self._strict_from: int | None = None
        self.boundary: int | None = None
        """No stable row below this tuple time will come."""
        self._reach: int | None = None
        for entry in log.entries(self._next):
            if entry.query != query:
                raise BackupLockedError(
                    f"The exchange {log.url} belongs to another query.",
                    why=f"Its entries are of query {entry.query}, and this is {query}. A query has "
                    "another id when its checkpoint was deleted, or none was named.",
                    do="Start the query with the checkpoint that it had; or write to another place.",
                )
            self._note(entry)

    # ---- what is written ---------------------------------------------------------------------------

    def add(self, epoch: int, kind: Kind, rows: Rows) -> bool:
        """Add an epoch's rows; false if they were there already.

        Raises:
            StaleOutputError: stable rows of this epoch were given, it was taken back since, and now
                comes with others.
        """
        with self._mutex:
            there = epoch <= self._stable_through or epoch in self._stable
            if there or (kind == "tentative" and epoch in self._early):
                self._compare(epoch, rows)
                self.log.folder.delete([each.name for each in rows.files])
                return False
            boundary = _later(self._reach if kind == "tentative" else self.boundary, rows.boundary)
            undo, done = None, False
            if kind == "stable" and self._early and boundary is not None:
                undo = Undone(after=self._last, before=boundary)
                done = self._reach is None or boundary >= self._reach
            self._append(
                Entry(
                    number=self._next,
                    kind=kind,
                    epoch=epoch,
                    files=rows.files,
                    boundary=boundary,
                    undo=undo,
                    done=done,
                    forced=kind == "tentative" and rows.failing and self._correcting,
                    digest=rows.digest,
                    late=rows.late,
                )
            )
            if self._next % TRIM_EVERY == 0:
                self._trim()
            return True

    def heartbeat(self, boundary: int) -> bool:
        """Say that nothing older will come, though no rows have come; false if that was known."""
        with self._mutex:
            if self.boundary is not None and boundary <= self.boundary:
                return False
            self._append(Entry(number=self._next, kind="mark", boundary=boundary))
            return True

    def take_back(self, epoch: int) -> None:
        """This epoch and all after it will be given again.

        Their tentative rows are withdrawn now. Their stable ones stay: the same must come again, and
        are dropped then.
        """
        with self._mutex:
            if any(each >= epoch for each in self._early):
                self._withdraw()
            self._strict_from = epoch

    def withdraw(self) -> None:
        """All tentative rows that were not corrected yet are withdrawn; others may come for them."""
        with self._mutex:
            if self._early:
                self._withdraw()

    # ---- inside --------------------------------------------------------------------------------------

    def _trim(self) -> None:
        try:
            trim_read(self.log)
        except BackupError as error:
            _log.warning("Old entries of %s are kept for now: %s", self.log.url, error)

    def _withdraw(self) -> None:
        undo = Undone(after=self._last, before=_END)
        self._append(Entry(number=self._next, kind="mark", undo=undo, done=True))

    def _append(self, entry: Entry) -> None:
        entry = msgspec.structs.replace(entry, query=self._query, written_at=self._clock())
        patiently(self.log.folder, lambda: self.log.append(entry))
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        self._next = entry.number + 1
        if entry.kind == "tentative":
            self._early.add(entry.epoch)
            self._reach = _later(self._reach, entry.boundary)
        else:
            self.boundary = _later(self.boundary, entry.boundary)
        if entry.kind == "stable":
            self._stable[entry.epoch] = (entry.rows, entry.digest)
            if len(self._stable) > REMEMBERED:
                oldest = min(self._stable)
                del self._stable[oldest]
                self._stable_through = oldest
            if entry.rows:
                self._last = RowId(epoch=entry.epoch, row=entry.rows - 1)
        self._correcting = (self._correcting or entry.undo is not None) and not (
            entry.done or entry.forced
        )
        if entry.done:
            self._early.clear()
            self._reach = None

    def _compare(self, epoch: int, rows: Rows) -> None:
        before = self._stable.get(epoch)
        if before is None or before == (sum(each.rows for each in rows.files), rows.digest):
            return
        if self._strict_from is None or epoch < self._strict_from:
            # A crash between our commit and Spark's, and state restored within its bound since.
            _log.warning("Epoch %d came again with other rows; the first ones stand.", epoch)
            return
        raise StaleOutputError(
            f"Epoch {epoch} came again with other rows than the exchange {self.log.url} has.",
            why="The query went back and read its source again, and the source cut other epochs, or "
            "an operator computes from more than its rows and state. Stable rows cannot be withdrawn.",
            do="Use a source that gives the same epochs again (a limit per trigger); or start again "
            "with an empty exchange, checkpoint and backup.",
        )


_END = 2**62
"""Above every tuple time."""


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
