"""How far the two ends of a feedback loop may drift apart (AF-Stream 2019 §6, after Petuum).

An operator that gets feedback is *ahead*; those that its rows flow to are *behind*. Under BSP every
epoch runs through both before the next begins. Under SSP the lane ahead may run up to ``staleness``
epochs further while the lane behind is still at work: the feedback used in epoch e is then that of
epoch e - 1 - staleness or newer. ASP is SSP with a limit that is due to space only.
"""

from __future__ import annotations

import msgspec

from tether.core.checks import count
from tether.core.errors import BadValueError

MOST_AHEAD = 64
"""Epochs that ASP lets wait between the two lanes: rows of each are in the checkpoint directory."""


class Consistency(msgspec.Struct, frozen=True):
    """A consistency model; make one with ``BSP()``, ``SSP(s)`` or ``ASP()``.

    Attributes:
        name: "BSP", "SSP" or "ASP".
        staleness: s, in epochs: most that the feedback in use may lag behind.
    """

    name: str
    staleness: int

    @property
    def splits(self) -> bool:
        """Whether the loop runs as two lanes at different paces."""
        return self.staleness > 0


def BSP() -> Consistency:  # noqa: N802 - the model's name
    """Bulk synchronous: feedback of epoch e - 1 is used in epoch e. The default.

    Example:
        >>> BSP().staleness
        0
    """
    return Consistency("BSP", 0)


def SSP(staleness: int) -> Consistency:  # noqa: N802
    """Stale synchronous: feedback in use in epoch e is of epoch e - 1 - ``staleness`` or newer.

    Args:
        staleness: In epochs, 0 or more; 0 is BSP.

    Example:
        >>> SSP(2).staleness
        2
    """
    if isinstance(staleness, bool) or not isinstance(staleness, int) or staleness < 0:
        raise BadValueError(
            f"staleness={staleness!r} is not a number of epochs.",
            do="Pass a whole number, 0 or above.",
        )
    if staleness > 0:
        count("staleness", staleness, unit="epochs")
    return Consistency("SSP", staleness)


def ASP() -> Consistency:  # noqa: N802
    """Asynchronous: the lane ahead waits only when space runs out.

    Example:
        >>> ASP().staleness == MOST_AHEAD
        True
    """
    return Consistency("ASP", MOST_AHEAD)
