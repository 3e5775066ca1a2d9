"""What the page is sent: all that is known when it comes, and from then on what is new."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from tether.observe.facts import Standing  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from tether.observe.feed import Feed
    from tether.ui.sources import Source

QUIET_KINDS = frozenset({"backup", "placed"})
"""Events that figures and slots tell better."""
EVENTS_SHOWN = 300
encode = msgspec.json.Encoder().encode


class Mark(msgspec.Struct):
    """How far a page has been told."""

    version: int = -1
    at: float = 0.0
    slots_at: float = 0.0
    event: int = 0
    failure: int = 0
    standing: Standing | None = None


def whole(feed: Feed, source: Source, *, drills: bool = False) -> tuple[dict[str, Any], Mark]:
    """All that a page shows, and a mark from which to go on."""
    mark = Mark()
    told = news(feed, source, mark)
    told |= {
        "query": feed.query,
        "runs": [at for at, _ in feed.runs],
        "actions": [name for name in feed.actions if name != "drill" or drills],
        "queries": [
            {"id": one.query.id, "name": one.query.name, "presence": source.presence(one)}
            for one in source.feeds()
            if one.query is not None
        ],
    }
    return told, mark


def news(feed: Feed, source: Source, mark: Mark) -> dict[str, Any]:
    """What is new since a mark, which is moved on."""
    mark.version = feed.version
    epochs = feed.epochs(mark.at)
    events = [(n, e) for n, e in feed.events(mark.event) if e.what not in QUIET_KINDS]
    # The last failure may have grown since.
    failures = feed.failures_after(mark.failure - 1)
    slots = feed.slots.now
    told: dict[str, Any] = {
        "now": time.time(),
        "presence": source.presence(feed),
        "heard_at": feed.heard_at,
        "total": feed.history.total,
        "epochs": epochs,
        "events": [[number, event] for number, event in events[-EVENTS_SHOWN:]],
        "failures": failures,
        "ended": feed.ended,
    }
    if slots is not None and slots.at != mark.slots_at:
        told["slots"] = slots
        mark.slots_at = slots.at
    if feed.standing is not mark.standing:
        told["standing"] = feed.standing
        mark.standing = feed.standing
    if epochs:
        mark.at = epochs[-1].at
    mark.event = events[-1][0] if events else mark.event
    mark.failure = failures[-1].number if failures else mark.failure
    return told
