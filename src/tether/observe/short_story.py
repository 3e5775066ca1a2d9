"""A story in a few lines: what happened, why, how often and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.observe.story import Event


def short_story(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events of one kind, cause and operator as one entry, in the order in which they first came.

    Args:
        events: ``query.story()``, oldest first.

    Example:
        >>> from tether.observe.story import Event
        >>> backups = [Event(at=0, epoch=e, what="backup", cause="theta", slot=e % 2) for e in (3, 5, 6)]
        >>> short_story(backups)
        [{'what': 'backup', 'cause': 'theta', 'times': 3, 'slots': 2, 'epochs': [3, 6]}]
    """
    found: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        found.setdefault((event.what, event.cause, event.operator), []).append(event)
    return [_told(of_a_kind) for of_a_kind in found.values()]


def _told(events: list[Event]) -> dict[str, Any]:
    first = events[0]
    slots = {event.slot for event in events if event.slot >= 0}
    epochs = [event.epoch for event in events]
    return {
        "what": first.what,
        "cause": first.cause,
        **({"operator": first.operator} if first.operator else {}),
        "times": len(events),
        **({"slots": len(slots)} if slots else {}),
        "epochs": [min(epochs), max(epochs)],
    }
