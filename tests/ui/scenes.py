"""What the page may have to show: made-up queries in every state that a real one comes into."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tether.core.ids import Slot
from tether.observe.facts import CopyNow, GatewayNow, Standing
from tether.observe.feed import Feed
from tether.testing.feeds import MadeUpQuery

if TYPE_CHECKING:
    from collections.abc import Callable

HEALING = {"state": "healing", "behind": 41, "seconds_left": 18.0}
TENTATIVE = {"state": "tentative", "fidelity": 0.92, "tentative_rows": 48_213}


def made_up(
    slots: int,
    run: str = "first",
    fails: bool = True,
    epochs: int = 80,
    last: dict[str, Any] | None = None,
) -> MadeUpQuery:
    """A query that has run for some epochs until now.

    Args:
        slots: Number of slots.
        run: Id of the run.
        fails: Whether an executor dies half way.
        epochs: How many epochs there were.
        last: Figures of the last epochs, after the failure.
    """
    query = MadeUpQuery(Feed(), slots=slots, began=time.time() - epochs * 0.4 - 2, run=run)
    struck = epochs // 2
    for number in range(epochs):
        if number == struck and fails:
            query.fail()
        query.epoch(**(last or {}) if number >= struck else {})
    query.at = time.time()
    return query


def _failures(many: int) -> MadeUpQuery:
    query = MadeUpQuery(Feed(), slots=24, began=time.time() - 230)
    for number in range(560):
        if many and number and not (number + 60) % (560 // (many + 1)):
            query.fail(number % 3)
        query.epoch()
    query.at = time.time()
    return query


def _missing(figures: dict[str, Any]) -> MadeUpQuery:
    since = {"missing_since": time.time() - 16, "missing_from": 40}
    if "tentative_rows" in figures:
        since["oldest_tentative"] = time.time() - 15
    return made_up(24, last={**figures, **since})


def _standing() -> MadeUpQuery:
    query = _failures(1)
    copies = tuple(
        CopyNow(
            operator="count",
            slot=Slot(slot),
            executor=f"executor {(slot + 1) % 3}",
            lag=slot % 3,
            speaks=slot == 4,
        )
        for slot in range(0, 12, 2)
    )
    gateways = tuple(
        GatewayNow(
            name=name, pending=pending, max_pending=most, unacked=unacked, max_unacked=allowed
        )
        for name, pending, most, unacked, allowed in (
            ("sensors-1:7070", 912.0, 1000.0, 40.0, 500.0),
            ("sensors-2:7070", 130.0, 1000.0, 0.0, 500.0),
            ("sensors-3:7070", 55.0, None, None, None),
        )
    )
    query.feed.take(Standing(at=time.time(), copies=copies, gateways=gateways))
    return query


def _gone() -> MadeUpQuery:
    query = _failures(2)
    query.feed.close("failed", "No space left on device: /data/backups/slots/count/3/812.log")
    return query


def _without_end(last: dict[str, Any]) -> MadeUpQuery:
    return made_up(24, fails=False, last=last)


SCENES: dict[str, Callable[[], MadeUpQuery]] = {
    "lossy": lambda: _failures(2),
    "one": lambda: made_up(1, fails=False),
    "thousand": lambda: made_up(1000),
    "many-failures": lambda: _failures(40),
    "healing": lambda: _missing(HEALING),
    "tentative": lambda: _missing(TENTATIVE),
    "standing": _standing,
    "failed": _gone,
    "no-bound": lambda: _without_end({"promised": None, "spent": None, "worst": None}),
    "exact": lambda: _without_end({"promised": 0.0, "spent": 0.0, "at_risk": 0.0, "worst": 0.0}),
    "waiting": lambda: made_up(4, epochs=0),
}
"""By name; each call makes one anew, that ends now."""
