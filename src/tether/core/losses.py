"""The cost of losses: figures that are fixed when a loss happens, whatever policy comes later.

The cost of a loss is determined once, by what was at risk: the θ that was *durable* before the loss, not
the one that is in force when the figure is read. The figure is written down with the terms (budget,
window, share) that it happened under. Every later policy reads the same account, exact policies and
those with another budget too.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tether.core.ids import Epoch, Failures

LossKind = Literal["state", "feedback"]
"""What was lost: resident state of a slot, or feedback items that waited at the driver."""

_Epoch = Annotated[Epoch, msgspec.Meta(ge=-1)]
_Size = Annotated[float, msgspec.Meta(ge=0)]


class LossRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One loss, as it is stored permanently.

    Args:
        lost: Names what was lost, so that a loss which is found twice is counted once: the lineage of
            the resident state; of feedback, the epoch that was to get it. Each can be lost only once.
        epoch: The epoch that was about to be run; -1 where nobody knows.
        at_most: Most divergence lost, in its units; at most ``theta``.
        theta: θ in force, as it was durable before the loss.
        failures: k as the policy counted it before this loss (in its window, if it had one).
        under: Name of the terms in force, see ``terms_of``.
        kind: What was lost.
        extra: Most divergence lost on top because a backup could not be read.
        items: Most items lost. Whole, or infinite.

    Example:
        >>> LossRecord(lost="genesis", epoch=7, at_most=20.0, theta=50.0, failures=0, under="").cost
        20.0
    """

    lost: str
    epoch: _Epoch
    at_most: _Size
    theta: _Size
    failures: Annotated[Failures, msgspec.Meta(ge=0)]
    under: str
    kind: LossKind = "state"
    extra: _Size = 0.0
    items: _Size = 0.0

    @property
    def cost(self) -> float:
        """Most divergence lost, whether a budget pays for it or not."""
        return self.at_most + self.extra
