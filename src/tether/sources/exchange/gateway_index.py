"""Extends the index of a gateway that is an input: what has come, of which time, and how far it is.

A thread of its own asks the gateway, so that one that hangs keeps nobody waiting: its input is silent.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tether.core.errors import BackupError, BackupLockedError, TetherError
from tether.sources.exchange.entries import Entry
from tether.sources.exchange.gateway_boundaries import earliest
from tether.sources.exchange.gateway_rows import ItemRange, described
from tether.sources.exchange.readers import known_readers
from tether.sources.gateway.messages import CommitNote

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.exchange.entries import DataFile
    from tether.sources.exchange.gateway_input import GatewayInput
    from tether.sources.exchange.log import ExchangeLog
    from tether.sources.gateway.calls import GatewayCalls
    from tether.sources.gateway.messages import StreamStatus
    from tether.sources.gateway.records import Boundary

_log = logging.getLogger(__name__)
LOOK_SECONDS = 0.05
"""Time between two looks at the gateway."""
MOST_ITEMS = 1_000_000
"""In one entry, of each process of the gateway."""
TRIM_EVERY = 50
"""Entries between two looks at what may be trimmed."""
CALL_SECONDS = 5.0
"""How long the gateway may take to answer."""


class GatewayIndex:
    """The index of one input. Several processes may extend it: each entry's number is taken once.

    Args:
        source: The gateway.
        log: Of the index.
        clock: Unix seconds.
    """

    def __init__(
        self, source: GatewayInput, log: ExchangeLog, clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._log, self._clock = source, log, clock
        self._calls: dict[str, GatewayCalls] = {}
        self._said: dict[str, list[Boundary]] = {}
        """By store, what its producers have said last."""
        self._registered: set[str] = set()
        self._reader = source.reader(log)
        self._looked, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._resume()

    # ---- in the background -----------------------------------------------------------------------

    def start(self) -> None:
        """Look again and again, until the process ends."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="tether-gateway-index", daemon=True
            )
            self._thread.start()

    def await_look(self, seconds: float) -> None:
        """Wait until the gateway has been looked at, or could not be."""
        self._looked.wait(seconds)

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        told = ""
        while not self._over.is_set():
            try:
                self.extend()
                told = ""
            except TetherError as error:  # its input is silent meanwhile
                if str(error) != told:
                    _log.warning("Nothing new is known of %r: %s", self._source, error)
                told = str(error)
            self._looked.set()
            self._over.wait(LOOK_SECONDS)

    # ---- one look --------------------------------------------------------------------------------

    def extend(self) -> bool:
        """Add an entry of what has come since the last one; false if nothing has.

        Raises:
            GatewayError: the gateway cannot be asked.
            BackupError: the index cannot be written.
        """
        files: list[DataFile] = []
        covered = dict(self._covered)
        for address in self._addresses():
            status = self._at(address).status(self._source.stream)
            self._register(address, status)
            self._said[status.store] = status.boundaries
            after = covered.get(status.store, status.committed)
            upto = min(status.shown, after + MOST_ITEMS)
            if upto <= after:
                continue
            covered[status.store] = upto
            columns = (self._source.time,)
            rows = self._at(address).read(self._source.stream, after + 1, upto, columns)
            if rows.num_rows:  # boundaries take up numbers, too
                items = ItemRange(status.store, after + 1, upto, self._boundary)
                files.append(described(items, rows[self._source.time]))
        said = [
            one
            for store, all_of_it in self._said.items()
            for one in all_of_it
            if one.number <= covered.get(store, 0)
        ]
        boundary = earliest(said, self._source.producers)
        known = self._boundary
        if known is not None and (boundary is None or boundary < known):
            boundary = known
        if not files and boundary == known:
            return False
        entry = Entry(
            number=self._next,
            kind="stable",
            epoch=self._next,
            query=self._reader,
            files=tuple(files),
            boundary=boundary,
            written_at=self._clock(),
            covered=covered,
        )
        try:
            self._log.append(entry)
        except BackupLockedError:
            self._resume()  # another subscription was quicker; what it has written counts
            return False
        self._note(entry)
        if entry.number % TRIM_EVERY == 0:
            self.trim()
        return True

    def trim(self) -> int:
        """Let go of what all known readers are done with, also at the gateway; give how many entries."""
        known = known_readers(self._log)
        needs = min(known.values(), default=0)
        last = None if needs <= self._log.first() else self._log.entry(needs - 1)
        if last is None:
            return 0
        for address in self._addresses():
            store = self._at(address).look(self._source.stream).store
            if (upto := last.covered.get(store)) is not None:
                note = CommitNote(stream=self._source.stream, reader=self._reader, upto=upto)
                self._at(address).commit(note)
        return self._log.trim(needs)

    def _register(self, address: str, status: StreamStatus) -> None:
        """From here on the gateway loses nothing, and keeps rows for this reader."""
        if status.store in self._registered:
            return
        note = CommitNote(stream=self._source.stream, reader=self._reader, max_lost=0.0)
        self._at(address).commit(note)
        self._registered.add(status.store)

    def _addresses(self) -> tuple[str, ...]:
        return self._at(self._source.gateway).parts()

    def _at(self, address: str) -> GatewayCalls:
        if address not in self._calls:
            self._calls[address] = self._source.calls(address, CALL_SECONDS)
        return self._calls[address]

    # ---- what is there already -------------------------------------------------------------------

    def _resume(self) -> None:
        self._next = self._log.first()
        self._boundary: int | None = None
        self._covered: dict[str, int] = {}
        for entry in self._log.entries(self._next):
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        self._next, self._boundary = entry.number + 1, entry.boundary
        self._covered = dict(entry.covered)


def begun(source: GatewayInput, log: ExchangeLog) -> GatewayIndex | None:
    """An index that extends itself; None if its place cannot be read now.

    Raises:
        BadValueError: it is the index of something else.
    """
    try:
        index = GatewayIndex(source, log)
    except BackupError as error:
        _log.warning("The index of %r cannot be read: %s", source, error)
        return None
    index.start()
    return index
