"""The feeds of this process: what a page that the driver serves can show."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tether.observe.feed import Feed

_KEPT_AFTER_END = 8
"""Feeds of queries that are over are kept so long that a page can still show them."""
_lock = threading.Lock()
_feeds: list[Feed] = []


def enlist(feed: Feed) -> None:
    """A query begins to tell."""
    with _lock:
        _feeds.append(feed)
        ended = [one for one in _feeds if one.ended is not None]
        for one in ended[:-_KEPT_AFTER_END]:
            _feeds.remove(one)


def feeds() -> list[Feed]:
    """All of them, the newest first; of one query that was restarted, the newest run."""
    with _lock:
        found: dict[str, Feed] = {}
        for feed in reversed(_feeds):
            if feed.query is not None:
                found.setdefault(feed.query.id, feed)
        return list(found.values())
