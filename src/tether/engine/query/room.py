"""Whether there is room for a second copy of the state, where the first one is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.engine.messages import SlotStatus

SPARE = 1.25
"""Safety factor, because a state may grow while its copy is made."""


def lacking_room(statuses: Iterable[SlotStatus]) -> str:
    """Why a second copy of these slots' states cannot be made; empty if it can.

    Slots on one executor share its room. Executors on one machine may share it too; this is not known
    here, and each of them reports all of the room.

    Args:
        statuses: What slots said when they were asked whether they are there.
    """
    needed: Counter[str] = Counter()
    room: dict[str, int] = {}
    for status in statuses:
        if status.room >= 0:
            host = status.executor.partition(":")[0]
            needed[host] += status.resident_bytes
            room[host] = min(status.room, room.get(host, status.room))
    for host, wanted in needed.items():
        if SPARE * wanted > room[host]:
            return (
                f"There is no room for a second copy of the state on {host}: "
                f"{wanted:,} bytes are in use and {room[host]:,} are free."
            )
    return ""
