"""When main waits for its twin (DPC 2005 §5); part of the pure :mod:`tether.protocols.take_over`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import epoch_after

if TYPE_CHECKING:
    from tether.protocols.take_over import TakeOver

CLOSE = 1
"""The twin has caught up when it is no more than so many epochs behind: main waits for those."""
NEAR = 10
"""Under ``delay`` main waits for so many epochs, if the twin gives the stable rows of each: the reader
gets those in place of tentative ones."""
STALLED = 20
"""Under ``delay`` main waits once it has run so many epochs in which the twin came no closer: else one
that never does would never take over."""


def main_waits(state: TakeOver) -> bool:
    """Whether main is to begin no further epoch until the twin has taken over.

    Example:
        >>> from tether.protocols.take_over import Note, TakeOver
        >>> note = Note(since=20, snapshot=4, through=19)
        >>> state = TakeOver(phase="tentative", main=24, note=note, twin=19, closest=5, closest_at=24)
        >>> main_waits(state)
        True
    """
    if state.twin is None or state.note is None:
        return False
    if state.strategy == "suspend" or state.behind <= CLOSE:
        return True
    if state.strategy != "delay" or state.closest is None:
        return False  # nobody knows yet what the twin can do
    if state.behind <= NEAR and state.speaks(epoch_after(state.twin)):
        return True
    return state.main - state.closest_at >= STALLED
