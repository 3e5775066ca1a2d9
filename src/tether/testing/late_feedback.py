"""Feedback that comes late on purpose, for tests of what a loop does under SSP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch
from tether.engine.query.feedback_box import FeedbackBox, Waiting
from tether.engine.writing.items import merge_items

if TYPE_CHECKING:
    from collections.abc import Callable


class LateFeedback(FeedbackBox):
    """Lets feedback wait for some epochs more.

    Args:
        epoch: Gives the epoch that is about to run.
        staleness: By how many epochs feedback comes late in an epoch: 0 is BSP.
    """

    def __init__(self, epoch: Callable[[], int], staleness: Callable[[int], int]) -> None:
        super().__init__()
        self._epoch, self._staleness = epoch, staleness

    def waiting(self, receiver: str) -> Waiting | None:
        """What the receiver has not had, and is old enough."""
        with self._lock:
            now = self._epoch()
            newest = min(self._finished.get(receiver, -1), now - 1 - self._staleness(now))
            if newest < 0:
                return None
            ready = [sent for sent in self._waiting.get(receiver, []) if sent.epoch <= newest]
            return Waiting(Epoch(newest), merge_items(sent.items for sent in ready))

    def lose(self) -> None:
        """Forget what is on its way."""
        with self._lock:
            self._waiting.clear()
