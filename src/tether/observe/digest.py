"""A feed in a few figures, for ``tether inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.observe.card import amount

if TYPE_CHECKING:
    from tether.observe.feed import Feed

FAILURES = 20
"""The newest so many are told."""


def digest_of(feed: Feed) -> dict[str, Any]:
    """What the feed last knew, as plain values; empty where nothing was ever told.

    Example:
        >>> from tether.observe.feed import Feed
        >>> digest_of(Feed())
        {}
    """
    last, total = feed.history.newest, feed.history.total
    if last is None or feed.query is None:
        return {}
    return {
        "query": feed.query.name,
        "runs": len(feed.runs),
        "state": feed.ended.how if feed.ended is not None else "running, or gone without a word",
        "heard_at": feed.heard_at,
        "last_epoch": last.epoch,
        "epochs": total.epochs,
        "rows_in": total.rows_in,
        "spent": amount(last.spent),
        "worst": amount(last.worst),
        "promised": amount(last.promised),
        "backups": total.backups,
        "backup_bytes": total.backup_bytes,
        "failures": [
            {
                "number": one.number,
                "at": one.at,
                "epoch": one.epoch,
                "slots": len(one.slots),
                "lost": amount(one.lost),
                "allowed": amount(one.allowed),
                "pause": one.pause,
            }
            for one in feed.failures_after()[-FAILURES:]
        ],
    }
