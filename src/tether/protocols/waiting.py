"""When main waits for its twin (DPC 2005 §5); part of the pure :mod:`tether.protocols.take_over`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch, epoch_after

if TYPE_CHECKING:
    from tether.protocols.take_over import TakeOver

CLOSE = 1
"""The twin has nearly caught up when it is at most this many epochs behind: main waits for those."""
NEAR = 20
"""The same under ``delay``, if the twin gives stable rows of each of these epochs: the reader gets them
in place of tentative ones."""
FEW = 4
"""The same where main's rows are valid as they are: it waits for no more than so many."""
STALLED = 10
"""Under ``delay`` main also waits once it has run this many epochs without the twin coming closer, or
as many as the twin was behind after its first one, at least these. Otherwise a twin that is too slow, or
that comes closer by an epoch now and then, would never take over."""


def main_waits(state: TakeOver) -> bool:
    """Whether main must be held until the twin has taken over.

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
        return False  # the speed of the twin is not known yet
    if state.behind <= NEAR and state.speaks(epoch_after(state.twin)):
        return True
    if state.behind <= FEW and not state.tentative:
        return True
    return state.main - state.closest_at >= STALLED or state.main >= state.patient_until


def patience(state: TakeOver) -> Epoch:
    """The epoch of main at whose end it waits at the latest, as of the twin's first one.

    A twin that is twice as fast as main has caught up by then.
    """
    return Epoch(state.main + max(STALLED, state.behind))
