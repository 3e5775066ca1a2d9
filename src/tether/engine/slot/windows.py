"""Which hopping windows are complete at the end of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch
from tether.operator import EndedWindow

if TYPE_CHECKING:
    from tether.core.windows import Window
    from tether.engine.messages import StreamClock

MOST_ENDS = 10_000
"""Largest number of windows that one epoch ends. Rows of earlier windows are late."""


def ended_windows(
    window: Window | None, epoch: Epoch, items: int, rows_in: int, clock: StreamClock
) -> list[EndedWindow]:
    """Hopping windows that end with this epoch.

    Args:
        window: The operator's.
        epoch: The epoch that ends.
        items: Rows that the slot had before it.
        rows_in: Rows that the slot gets in it.
        clock: Of the whole stream, before the epoch.

    Example:
        >>> from tether.core.windows import Hopping
        >>> from tether.engine.messages import StreamClock
        >>> ended = ended_windows(Hopping(2, "epochs"), 3, 0, 0, StreamClock())
        >>> [(window.start, window.end) for window in ended]
        [(2.0, 4.0)]
    """
    if window is None or not window.has_ends:
        return []
    if window.by == "epochs":
        after, upto = float(epoch), float(epoch + 1)
    elif window.by == "items":
        after, upto = float(items), float(items + rows_in)
    elif clock.watermark is None or clock.passed is None:
        return []
    else:
        # One row with a very old event time must not end millions of windows.
        after = max(clock.passed, clock.watermark - MOST_ENDS * window.step)
        upto = clock.watermark
    return [
        EndedWindow(start=end - window.length, end=end, by=window.by)
        for end in window.ends(after=after, upto=upto)
    ]
