"""What one entry of an exchange says. Entries never change once they are there."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["stable", "tentative", "mark"]


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an entry, written by one task, in order of their tuple time."""

    name: str
    """Relative to the exchange."""
    rows: int
    size: int
    """Bytes."""
    checksum: int
    """CRC-32 of all bytes."""
    low: int
    """Lowest tuple time."""
    high: int
    """Highest tuple time."""


class RowId(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a row of an exchange."""

    epoch: int
    row: int
    """Number within the epoch, from 0, through the files in their order."""


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """Tentative rows are withdrawn: stable ones follow in their place."""

    after: RowId | None
    """The last stable row, which stays as all before it; None: there is none."""
    before: int
    """Withdrawn are tentative rows of earlier entries with a tuple time below this."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one epoch, a mark, or both."""

    number: int
    kind: Kind
    epoch: int = -1
    """The writing query's; -1 for a mark."""
    query: str = ""
    """Id of the query that wrote it."""
    files: tuple[DataFile, ...] = ()
    boundary: int | None = None
    """No later entry has a row with a tuple time below this: of a stable entry or a mark, no stable
    row; of a tentative one, no tentative row until the next correction."""
    undo: Undone | None = None
    done: bool = False
    """Whether corrections end here (DPC's REC_DONE)."""
    forced: bool = False
    """Whether a new failure came before all was corrected: as if REC_DONE were before these rows, the
    first of the new failure. Those before stay tentative until they are corrected, too."""
    digest: int = 0
    """Sum of the rows' hashes: equal for equal rows in any order."""
    late: int = 0
    """Rows that were older than a boundary told before; their tuple time was set to it."""
    written_at: float = 0.0
    """Unix seconds, by the writer's clock."""
    covered: dict[str, int] = {}
    """In an index of a gateway: by store, the newest item that this entry and those before it name."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(each.rows for each in self.files)
