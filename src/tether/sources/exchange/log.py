"""Entries by number: they appear whole or not at all, and never change.

Layout below the exchange's place::

    exchange.json  entries/<number>.json  data/<epoch>-<attempt>-<task>.parquet
    first.json  readers/<name>.json

An entry names the files with its rows, their sizes and checksums. So rows that a killed writer left
behind are never read: no entry names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from tether.backup.sealed import seal, unseal
from tether.core.errors import BackupLockedError, BackupUnreadableError, BadValueError
from tether.sources.exchange.entries import Entry
from tether.sources.exchange.folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.sources.exchange.folder import Folder

_ABOUT, _FIRST, _ENTRIES, DATA = "exchange.json", "first.json", "entries", "data"
VERSION = 1
_T = TypeVar("_T")

TUPLE_TIME, ROW_HASH = "_tuple_time", "_row_hash"
"""Columns that an exchange adds to its rows."""


class ExchangeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an exchange: small, and fit to be sent to executors."""

    url: str
    options: dict[str, Any] = {}

    def open(self) -> ExchangeLog:
        """Open it here."""
        return ExchangeLog(open_folder(self.url, self.options))

    def __repr__(self) -> str:
        return f"ExchangeAddress(url={self.url!r})"  # options may hold secrets


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all entries of an exchange."""

    row_schema: str
    """Of the rows, without our own columns: Spark's JSON."""
    unit: Literal["microseconds", "integer"]
    """Unit of tuple times: microseconds since 1970 if they were made from timestamps, else the
    column's."""
    replicated: bool = False
    """Whether rows carry a hash, which gives rows of equal tuple time the same order in all replicas."""
    version: int = VERSION


class ExchangeLog:
    """The log of one exchange, for its writer and its readers.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.url = folder.url

    # ---- what it is ------------------------------------------------------------------------------

    def about(self) -> About | None:
        """What holds for all entries; None where there is no exchange yet."""
        try:
            found = self._sealed(_ABOUT, About)
        except FileNotFoundError:
            return None
        if found.version != VERSION:
            raise BackupUnreadableError(
                f"The exchange {self.url} cannot be read.",
                why=f"It is of format {found.version}, and this Tether knows {VERSION}.",
                do="Use the Tether that wrote it, or a newer one.",
            )
        return found

    def create(self, about: About) -> None:
        """Make the exchange, or make sure that it is such a one.

        Raises:
            BadValueError: there is one with other rows.
        """
        try:
            self.folder.create(_ABOUT, seal(about))
        except FileExistsError:
            if self.about() != about:
                raise BadValueError(
                    f"The exchange {self.url} has other rows.",
                    why="Its columns, its tuple time's unit or its hashes differ from what is written "
                    "to it now, and its readers rely on them.",
                    do="Write to another place, and let readers follow there.",
                ) from None

    # ---- entries ---------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Add the entry after the last one; it is durable on return.

        Raises:
            BackupLockedError: there is another one of that number: somebody else writes too.
        """
        try:
            self.folder.create(_name(entry.number), seal(entry))
        except FileExistsError:
            raise BackupLockedError(
                f"Another query writes to the exchange {self.url}.",
                why=f"Its entry {entry.number} was written by somebody else.",
                do="Stop that query, or give this one an exchange of its own.",
            ) from None

    def entry(self, number: int) -> Entry | None:
        """An entry; None if it is not there (yet).

        Raises:
            BackupUnreadableError: it is not as it was written, or was trimmed.
        """
        found = self._there(number)
        if found is None and number < self.first():
            raise BackupUnreadableError(
                f"Entry {number} of the exchange {self.url} is gone.",
                why="All readers that were known then had read it, so it was trimmed.",
                do="Start this reader from an empty checkpoint and under a new name: it begins "
                "with the oldest entry that is left.",
            )
        return found

    def entries(self, first: int, end: int | None = None) -> Iterator[Entry]:
        """Entries from a number on, as far as they are there, or up to a number.

        Raises:
            BackupUnreadableError: one below ``end`` is missing or damaged.
        """
        number = first
        while end is None or number < end:
            found = self.entry(number)
            if found is None:
                if end is None:
                    return
                raise BackupUnreadableError(
                    f"Entry {number} of the exchange {self.url} is missing.",
                    why="It was there when it was read first.",
                    do="Restore the exchange from a copy.",
                )
            yield found
            number += 1

    def first(self) -> int:
        """Number of the oldest entry that was not trimmed."""
        try:
            return self._sealed(_FIRST, _First).first
        except FileNotFoundError:
            return 0

    def trim(self, number: int) -> int:
        """Drop entries below a number, and their rows; give how many.

        What is about to go is told first, so that no reader takes half of it for all.
        """
        below = [int(name[-17:-5]) for name in self.folder.sizes(_ENTRIES)]
        # Also removes what a writer left that was killed while it did this.
        old = [
            entry for each in below if each < number and (entry := self._there(each)) is not None
        ]
        if not old:
            return 0
        end = max(self.first(), old[-1].number + 1)
        self.folder.replace(_FIRST, seal(_First(first=end)))
        # What an index names is at a gateway.
        names = (file.name for entry in old for file in entry.files)
        self.folder.delete([name for name in names if name.startswith(DATA)])
        self.folder.delete([_name(entry.number) for entry in old])
        return len(old)

    def _there(self, number: int) -> Entry | None:
        try:
            return self._sealed(_name(number), Entry)
        except FileNotFoundError:
            return None

    def _sealed(self, name: str, kind: type[_T]) -> _T:
        data = self.folder.read(name)
        try:
            return msgspec.convert(unseal(data), kind)
        except (ValueError, msgspec.ValidationError) as error:
            raise BackupUnreadableError(
                f"{name} of the exchange {self.url} cannot be read.",
                why=f"It is damaged: {error}.",
                do="Restore it from a copy.",
            ) from error


class _First(msgspec.Struct, frozen=True, kw_only=True):
    first: int


def _name(number: int) -> str:
    return f"{_ENTRIES}/{number:012}.json"
