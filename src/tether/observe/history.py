"""Figures of all epochs of a query in bounded memory: the newest as they were, older ones joined."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tether.core.ids import NEVER
from tether.observe.facts import EpochFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FINE = 600
"""Number of newest epochs that are never joined."""
COARSE = 600
"""Largest number of entries for all epochs before those."""


def joined(first: EpochFigures, second: EpochFigures) -> EpochFigures:
    """Two entries as one: sums are added, what stood at the end stands, the worst moment counts.

    Example:
        >>> one = EpochFigures(at=1, epoch=0, rows_in=5, spent=3.0, fullness=0.9)
        >>> two = EpochFigures(at=2, epoch=1, rows_in=7, spent=1.0, fullness=0.2)
        >>> both = joined(one, two)
        >>> both.epochs, both.rows_in, both.spent, both.fullness
        (2, 12, 3.0, 0.9)
    """
    return EpochFigures(
        at=second.at,
        epoch=second.epoch,
        epochs=first.epochs + second.epochs,
        seconds=first.seconds + second.seconds,
        rows_in=first.rows_in + second.rows_in,
        rows_out=first.rows_out + second.rows_out,
        promised=second.promised,
        spent=_most(first.spent, second.spent),
        at_risk=_most(first.at_risk, second.at_risk),
        worst=_most(first.worst, second.worst),
        left=None if None in (first.left, second.left) else min(first.left, second.left),  # type: ignore[type-var]
        backups=dict(Counter(first.backups) + Counter(second.backups)),
        backup_bytes=dict(Counter(first.backup_bytes) + Counter(second.backup_bytes)),
        changed=first.changed + second.changed,
        entry_bytes=second.entry_bytes or first.entry_bytes,
        resident_bytes=second.resident_bytes,
        fullness=max(first.fullness, second.fullness),
        losses=first.losses + second.losses,
        state=second.state,
        fidelity=min(first.fidelity, second.fidelity),
        behind=second.behind,
        seconds_left=second.seconds_left,
        missing_since=second.missing_since,
        missing_from=second.missing_from,
        tentative_rows=second.tentative_rows,
        oldest_tentative=second.oldest_tentative,
    )


def _most(one: float | None, other: float | None) -> float | None:
    """The larger amount; one without a limit is the largest."""
    return None if one is None or other is None else max(one, other)


class EpochHistory:
    """Entries in order, at most ``FINE + COARSE`` of them, and sums over all.

    Joining two neighbours halves the older part whenever it is full, so every epoch costs a constant
    amount of work on average, and a query of years still shows its beginning.
    """

    def __init__(self) -> None:
        self._entries: list[EpochFigures] = []
        self.total = EpochFigures(at=0.0, epoch=NEVER, epochs=0)
        """All epochs as one."""

    def add(self, figures: EpochFigures) -> None:
        """Take in the newest epoch."""
        self._entries.append(figures)
        self.total = joined(self.total, figures)
        if len(self._entries) > FINE + COARSE:
            older, newest = self._entries[:-FINE], self._entries[-FINE:]
            self._entries = [*_by_twos(older), *newest]

    def add_to_total(
        self, sums: Mapping[str, int], backups: Mapping[str, int], written: Mapping[str, int]
    ) -> None:
        """Add epochs to the total of which no figures are left.

        Args:
            sums: Their sums, by the names of the figures.
            backups: Their backups by cause.
            written: Bytes of these by cause.
        """
        total = self.total
        self.total = msgspec.structs.replace(
            total,
            **{name: getattr(total, name) + value for name, value in sums.items()},
            backups=dict(Counter(total.backups) + Counter(backups)),
            backup_bytes=dict(Counter(total.backup_bytes) + Counter(written)),
        )

    def entries(self, after: float = 0.0) -> list[EpochFigures]:
        """Entries that ended later than ``after``, oldest first."""
        if not after:
            return list(self._entries)
        start = len(self._entries)
        while start and self._entries[start - 1].at > after:
            start -= 1
        return self._entries[start:]

    @property
    def newest(self) -> EpochFigures | None:
        """The newest entry."""
        return self._entries[-1] if self._entries else None


def _by_twos(entries: list[EpochFigures]) -> Iterable[EpochFigures]:
    for at in range(0, len(entries) - 1, 2):
        yield joined(entries[at], entries[at + 1])
    if len(entries) % 2:
        yield entries[-1]
