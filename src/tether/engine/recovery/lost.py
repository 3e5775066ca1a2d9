"""The error by which a slot tells the driver that only a rewind can restore its state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from tether.engine.ports import Statuses


class LostStateError(TetherError):
    """A slot's state is lost, and what is durable is older than the previous epoch.

    Args:
        what: What happened, one sentence.
        why: The cause, as far as it is known.
        do: What the reader can do about it.
        there: Reports of the slots that have their state, if all were probed. They stay in this process:
            an error that is pickled does not take them with it.
    """

    code = "lost-state"

    def __init__(
        self, what: str, *, why: str = "", do: str = "", there: Statuses | None = None
    ) -> None:
        super().__init__(what, why=why, do=do)
        self.there = there


def is_loss(error: BaseException) -> bool:
    """Whether an action failed because a slot has lost its state.

    Spark turns exceptions of tasks into text, so only the text can be examined.

    Example:
        >>> is_loss(RuntimeError("… tether.engine.recovery.lost.LostStateError: Slot 1 …"))
        True
    """
    named = f"{LostStateError.__module__}.{LostStateError.__name__}"
    return isinstance(error, LostStateError) or named in str(error)


def what_was_lost(error: BaseException) -> str:
    """The slot's message, found in Spark's text.

    Example:
        >>> what_was_lost(RuntimeError("… LostStateError: Slot 1 is lost. Why: a kill. What …"))
        'Slot 1 is lost.'
    """
    if isinstance(error, LostStateError):
        return error.what
    found = re.search(rf"{LostStateError.__name__}: (?P<what>[^\n]*?)(?: Why: |\n|$)", str(error))
    return found["what"] if found else str(error)
