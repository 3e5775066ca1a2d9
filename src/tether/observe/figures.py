"""From the reports of an operator query's slots to the figures of an epoch."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tether.core.ids import Epoch
from tether.observe.facts import EpochFigures, SlotsNow, finite
from tether.observe.quick_bound import QuickBound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.core.accounts import Account
    from tether.core.amplification import Amplification
    from tether.core.budget import Budget
    from tether.engine.messages import SlotStatus
    from tether.engine.query.ledger import Glimpse

TELL_SLOTS_SECONDS = 0.95
"""With many slots, the reports of all are put together at most this often, in seconds."""
MANY_SLOTS = 64


class Reports(NamedTuple):
    """What an epoch has left behind: cheap to take, worked out later on another thread."""

    at: float
    epoch: Epoch
    seconds: float
    glimpses: Sequence[Glimpse]
    statuses: Sequence[Sequence[SlotStatus]]
    """Newest reports of each operator's slots, in the order of ``glimpses``."""


class FigureMaker:
    """Makes figures of one query's epochs, in order.

    Args:
        operators: Names of its operators, upstream ones first.
        amplification: How errors spread between them.
        shared: The one budget, where all share it.
        entries: Operators that take in the query's rows.
        ends: Operators that give its rows.
    """

    def __init__(
        self,
        operators: Sequence[str],
        amplification: Amplification | None,
        shared: Budget | None,
        entries: frozenset[str],
        ends: frozenset[str],
    ) -> None:
        self._places = {name: place for place, name in enumerate(operators)}
        self._entries, self._ends = entries, ends
        self._bound = QuickBound(amplification, shared)
        self._losses = 0
        self._written = Counter[str]()
        self._backed_up: dict[tuple[str, int], tuple[int, float]] = {}
        self._slots_at = 0.0
        self._epoch = -1

    def figures(self, reports: Reports) -> EpochFigures:
        """The figures of an epoch."""
        bound = self._bound.sums(*_books(reports.glimpses))
        backups, written, changed, resident = Counter[str](), Counter[str](), 0, 0
        rows_in = rows_out = 0
        fullness = 0.0
        for statuses in reports.statuses:
            for status in statuses:
                if status.epoch == reports.epoch:
                    changed += status.changed
                    rows_in += status.rows_in if status.operator in self._entries else 0
                    rows_out += status.rows_out if status.operator in self._ends else 0
                    self._note_backups(status, reports.at, backups, written)
                resident += status.resident_bytes
                if 0 < status.theta < math.inf and status.divergence < math.inf:
                    fullness = max(fullness, status.divergence / status.theta)
        losses = sum(glimpse.totals["losses"] for glimpse in reports.glimpses)
        lost, self._losses = losses - self._losses, losses
        self._written.update(bytes=sum(written.values()))
        entries = self._written["entries"]
        return EpochFigures(
            at=reports.at,
            epoch=reports.epoch,
            seconds=reports.seconds,
            rows_in=rows_in,
            rows_out=rows_out,
            promised=finite(bound.promised),
            spent=finite(bound.spent),
            at_risk=finite(bound.at_risk),
            worst=finite(bound.worst_now),
            left=finite(bound.left),
            backups=dict(backups),
            backup_bytes=dict(written),
            changed=changed,
            entry_bytes=self._written["bytes"] / entries if entries else 0.0,
            resident_bytes=resident,
            fullness=fullness,
            losses=max(0, lost),
        )

    def _note_backups(
        self, status: SlotStatus, at: float, backups: Counter[str], written: Counter[str]
    ) -> None:
        place = (status.operator, status.slot)
        if (frame := status.frame) is not None:
            backups[frame.cause] += 1
            written[frame.cause] += frame.ref.length
            self._written["entries"] += frame.entries
            self._backed_up[place] = (status.epoch, at)
        if status.part_done is not None and status.part_done.ref is not None:
            backups["snapshot"] += 1
            written["snapshot"] += status.part_done.ref.length
            self._backed_up[place] = (status.epoch, at)
        if status.part is not None:
            self._written["entries"] += status.part.entries
        if status.logged is not None:
            written["items"] += status.logged.length
        if status.recovery is not None and status.recovery.backup_epoch >= 0:
            self._backed_up.setdefault(place, (status.recovery.backup_epoch, at))

    def slots(self, reports: Reports) -> SlotsNow | None:
        """All slots as they are; None if there are many and they were told just now."""
        statuses = [status for group in reports.statuses for status in group]
        now = time.monotonic()
        if len(statuses) > MANY_SLOTS and now - self._slots_at < TELL_SLOTS_SECONDS:
            return None
        self._slots_at = now
        names: dict[str, int] = {}
        for status in statuses:
            names.setdefault(status.executor, len(names))
        none = (-1, 0.0)
        backed_up = [self._backed_up.get((one.operator, one.slot), none) for one in statuses]
        return SlotsNow(
            at=reports.at,
            epoch=reports.epoch,
            operator=[self._places[one.operator] for one in statuses],
            slot=[one.slot for one in statuses],
            divergence=[finite(one.divergence) for one in statuses],
            theta=[finite(one.theta) for one in statuses],
            executor=[names[one.executor] for one in statuses],
            backup_epoch=[epoch for epoch, _ in backed_up],
            backup_at=[at for _, at in backed_up],
            failures=[one.failures for one in statuses],
            rows=[one.rows_in for one in statuses],
            resident_bytes=[one.resident_bytes for one in statuses],
            executors=list(names),
        )


def _books(glimpses: Sequence[Glimpse]) -> tuple[list[Account], object]:
    """The accounts, and something that differs when losses or shares have changed."""
    accounts = [one.account for one in glimpses]
    key = [
        (
            glimpse.totals["losses"],
            len(account.facts),
            sum(fact.failures for fact in account.facts),
            sum(len(fact.losses) for fact in account.facts),
            sum(fact.inherited for fact in account.facts if fact.inherited < math.inf),
            sum(fact.theta == math.inf for fact in account.facts),
        )
        for glimpse, account in zip(glimpses, accounts, strict=True)
    ]
    return accounts, key


def policy_words(describe: Mapping[str, object]) -> str:
    """A policy's description as one line.

    Example:
        >>> policy_words({"policy": "approximate", "max_state_error": 1000.0, "window": None})
        'approximate, max_state_error=1000'
    """
    told = []
    for name, value in describe.items():
        if value is not None:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            told.append(shown if name == "policy" else f"{name}={shown}")
    return ", ".join(told)
