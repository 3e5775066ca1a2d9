"""A stream as the gateway before this one left it, and what was lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tether.protocols.items import ReceiverState, Replay, recovered
from tether.protocols.lost_items import LostItems, after_loss, heard_after_loss
from tether.sources.gateway.backlog import Backlog, HeldRun
from tether.sources.gateway.records import Entry

if TYPE_CHECKING:
    from tether.sources.gateway.marks import Marks
    from tether.sources.gateway.segments import FoundEntry, SegmentLog


class Opened(NamedTuple):
    """What a stream goes on with."""

    state: ReceiverState
    heard: dict[str, int]
    backlog: Backlog
    entry: Entry
    """To be made durable before anybody is served."""
    lost: LostItems | None


def resume(log: SegmentLog, found: list[FoundEntry], marks: Marks | None) -> Opened:
    """Take over what is there.

    Args:
        log: The stream's log, read.
        found: What was read.
        marks: Of the gateway before, if they can be believed.
    """
    facts = log.facts
    committed = max(facts.committed, marks.committed if marks else 0)
    safe, shown = max(facts.backed_up, committed), facts.shown
    lost = None
    heard, used = dict(facts.heard), facts.used
    account = facts.account
    if found and not facts.clean:
        runs = None if marks is None else [run for run in marks.runs if run.last > safe]
        lost = after_loss(safe=safe, shown=shown, runs=runs, l=account.limit)
        if marks is not None:
            used = max(used, marks.received, lost.last)
            for producer, newest in marks.heard.items():
                heard[producer] = max(newest, heard.get(producer, 0))
            heard = heard_after_loss(heard, safe, shown, marks.runs)
        if log.damaged:
            # Durable items cannot be read; their numbers say how many.
            lost = replace(lost, at_most=lost.at_most + _unreadable(found, committed, safe))
        elif log.missing:
            lost = replace(lost, at_most=lost.at_most + log.missing)
        if lost.at_most:
            account = replace(account, losses=(*account.losses, lost))
    state = recovered(
        ReceiverState(), Replay(first=committed + 1, last=max(committed, safe)), used=used
    )
    backlog = Backlog()
    for entry, places in found:
        for run, place in zip(entry.runs, places, strict=True):
            if run.number + run.items - 1 > committed:
                backlog.add(HeldRun(run.number, run.producer, run.first, run.items, place=place))
    entry = Entry(used=used, committed=committed, heard=heard, account=account)
    return Opened(state, heard, backlog, entry, lost if lost and lost.at_most else None)


def _unreadable(found: list[FoundEntry], committed: int, safe: int) -> int:
    """Numbers that were durable and have no readable rows: boundaries and old losses among them."""
    readable = sum(
        min(run.number + run.items - 1, safe) - max(run.number - 1, committed)
        for entry, _ in found
        for run in entry.runs
        if run.number + run.items - 1 > committed
    )
    return max(0, safe - committed - readable)
