"""L and Γ of a query, divided among its gateways (AF-Stream 2019 §3.5.3).

A gateway's items are input of the operators that read it; one that is lost there can cost as many
outputs as one that such an operator loses. Feedback takes its part of L by the same rule: an m-th for
each of at most m - 1 operators that send any. What these leave is shared by the gateways alike.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from tether.core.numbers import rounded_down
from tether.core.thresholds import outputs_of_item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.core.budget import Budget
    from tether.core.placement import Placement


class Share(NamedTuple):
    """What one gateway may lose over all its crashes, and its producers over all their deaths."""

    max_lost: float
    max_unacked: float


def gateway_share(
    budgets: Sequence[Budget], placements: Sequence[Placement], *, gateways: int, senders: int
) -> Share:
    """A gateway's part of L and Γ.

    Args:
        budgets: Of all operators; the smallest counts.
        placements: Of all operators.
        gateways: How many gateways the query reads.
        senders: How many operators send feedback.

    Example:
        >>> from tether.core.budget import Budget
        >>> from tether.core.placement import Placement
        >>> gateway_share([Budget(max_lost_items=100)], [Placement(copies=4)], gateways=2, senders=0)
        Share(max_lost=50.0, max_unacked=0.0)
    """
    length = max(place.length for place in placements)
    weight = max(outputs_of_item(place) for place in placements)
    left = Fraction(max(1, length - senders), length)
    parts = gateways * weight / left

    def part(total: float) -> float:
        return (
            total if math.isinf(total) else float(math.floor(rounded_down(Fraction(total) / parts)))
        )

    return Share(
        max_lost=part(min(one.max_lost_items for one in budgets)),
        max_unacked=part(min(one.max_unacked_items for one in budgets)),
    )
