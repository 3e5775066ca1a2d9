"""A feed in a few figures, for ``tether inspect``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tether.observe.card import amount

if TYPE_CHECKING:
    from tether.observe.facts import EpochFigures
    from tether.observe.feed import Feed

FAILURES = 20
"""Number of failures that are told, newest first."""


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
        "healing": _healing(last),
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


def _healing(last: EpochFigures) -> dict[str, Any] | None:
    """What was missing at the end of the last epoch, and how far its correction was; None: nothing."""
    if last.state == "stable":
        return None
    now = time.time()
    oldest = last.oldest_tentative
    return {
        "state": last.state,
        "since_epoch": last.missing_from,
        "since": last.missing_since,
        "epochs_behind": last.behind,
        "seconds_left": last.seconds_left,
        "fidelity": last.fidelity,
        "tentative_rows": last.tentative_rows,
        "oldest_tentative_seconds": 0.0 if oldest is None else max(0.0, now - oldest),
    }
