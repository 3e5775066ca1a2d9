"""The budget: how wrong the answer may become, over all failures together."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from tether.core.checks import amount


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Θ, L and Γ of AF-Stream 2019 §3.4.4: what all failures together may cost.

    Intuition: the distance between the live state and what is durable is limited. There is one budget
    for the whole query, and each slot gets a share of it (see ``tether.core.thresholds``).

    Guarantee, for any number of failures of any slots, if each slot keeps to its thresholds and no
    operator increases errors by more than it declares (α and β are the most state divergence and the
    most output items that one input item can cause, in any operator):

    - the state's error is at most Θ + L·α;
    - the outputs lost are at most Γ + L·β.

    For each part 0 is legal and means exact, and ``math.inf`` is legal and means never backed up.

    Args:
        max_state_error: Θ, in units of the state's divergence (counts, bytes, a distance…).
        max_lost_items: L, in items taken in but neither processed nor backed up.
        max_unacked_items: Γ, in items sent whose receipt is not yet acknowledged.

    Example:
        >>> budget = Budget(max_state_error=1000, max_lost_items=10)
        >>> budget.state_error(alpha=2), budget.lost_outputs(beta=3)
        (1020.0, 30.0)
        >>> Budget(max_state_error=-1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.core.errors.BadValueError: max_state_error=-1 is negative. Why: ...
    """

    max_state_error: float = 0.0
    max_lost_items: float = 0.0
    max_unacked_items: float = 0.0

    def __post_init__(self) -> None:
        units = {
            "max_state_error": "units of the state's divergence",
            "max_lost_items": "items",
            "max_unacked_items": "items",
        }
        for name, unit in units.items():
            checked = amount(
                name, getattr(self, name), unit=unit, zero="exact", infinite="never backed up"
            )
            # 1000 and 1000.0 are one budget, also where its text is compared.
            force_setattr(self, name, checked)

    def state_error(self, alpha: float) -> float:
        """Θ + L·α: the most that the state can be wrong by, in units of the divergence."""
        return self.max_state_error + _times(self.max_lost_items, alpha)

    def lost_outputs(self, beta: float) -> float:
        """Γ + L·β: the most output items that can be missing."""
        return self.max_unacked_items + _times(self.max_lost_items, beta)


def _times(items: float, each: float) -> float:
    # 0 * inf is NaN in floats, but items without any effect cost nothing, however many they are.
    return items * each if items and each else 0.0
