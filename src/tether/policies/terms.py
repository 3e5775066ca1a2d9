"""The terms of a slot (policy and placement), and which losses under other terms its budget pays for."""

from __future__ import annotations

import math
from fractions import Fraction
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from tether.core.accounts import PricedLoss
from tether.core.ids import Failures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.core.losses import LossRecord
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.policies.policy import Policy


def terms_of(policy: Policy, placement: Placement) -> str:
    """A short name for all that a slot's thresholds depend on: equal terms have equal names.

    The time and the target of backups are not part of it.

    Example:
        >>> from tether.core.placement import Placement
        >>> from tether.policies.approximate import Approximate
        >>> here, there = Placement(copies=2), Placement(copies=4)
        >>> terms_of(Approximate(10), here) == terms_of(Approximate(10.0, early=0.9), here)
        True
        >>> terms_of(Approximate(10), here) == terms_of(Approximate(10), there)
        False
    """
    told = (policy.name, policy.budget, policy.window, placement)
    return blake2b(msgspec.msgpack.encode(told), digest_size=6).hexdigest()


def counted(
    records: Iterable[LossRecord], policy: Policy, placement: Placement, window: Window | None
) -> tuple[PricedLoss, ...]:
    """A slot's losses as the bound under a policy counts them: all, in full, and each once.

    What was lost under the policy's own terms is paid from its budget, as far as that goes. An exact
    policy has none; yet its account may hold a loss under its own terms, found while another policy was
    in force that could not make it good. Of what was lost under other terms, the budget pays as much as
    it would have allowed at that loss's place among all; the rest widens the bound, like an unreadable
    backup. With a window it pays nothing, for it is given back as the stream goes on. So for any history
    of policies the losses that a budget pays for stay within it.

    Args:
        records: The slot's account, in any order.
        policy: The one in force now.
        placement: Of the slot.
        window: How much of the stream an answer covers, if not all.

    Example:
        >>> from tether.core.losses import LossRecord
        >>> from tether.core.placement import Placement
        >>> from tether.policies.approximate import Approximate
        >>> lost = LossRecord(lost="a", epoch=3, at_most=600.0, theta=600.0, failures=0, under="?")
        >>> (loss,) = counted([lost], Approximate(20), Placement(), None)
        >>> loss.at_most, loss.extra
        (10.0, 590.0)
    """
    terms, by_epochs = terms_of(policy, placement), window is not None and window.by == "epochs"
    losses = []
    # A loss whose epoch is not known (-1) has no place in a window, so it never leaves one.
    for place, record in enumerate(sorted(records, key=lambda one: (one.epoch, one.lost))):
        allowed = policy.budget.max_state_error
        if record.under != terms:
            allowed = _allowed(policy, placement, Failures(place))
        paid = min(record.at_most, allowed)
        losses.append(
            PricedLoss(
                epoch=record.epoch,
                at_most=paid,
                extra=record.extra + _rest(record.at_most, paid),
                items=record.items,
                position=float(record.epoch) if by_epochs and record.epoch >= 0 else None,
            )
        )
    return tuple(losses)


def not_paid(theta: float, policy: Policy, placement: Placement, losses: Failures) -> float:
    """The part of what is at risk under other terms that the policy's budget would not pay for.

    Args:
        theta: θ under those terms.
        policy: The one in force now.
        placement: Of the slot.
        losses: How many losses of state the slot has had.

    Example:
        >>> from tether.core.placement import Placement
        >>> from tether.policies.approximate import Approximate
        >>> not_paid(300.0, Approximate(20), Placement(), losses=1)
        295.0
    """
    return _rest(theta, _allowed(policy, placement, losses))


def _rest(whole: float, paid: float) -> float:
    if paid >= whole:
        return 0.0  # both may be infinite, and their difference is not a number
    rest = whole - paid
    rounded_down = math.isfinite(rest) and Fraction(rest) + Fraction(paid) < Fraction(whole)
    return math.nextafter(rest, math.inf) if rounded_down else rest


def _allowed(policy: Policy, placement: Placement, failures: Failures) -> float:
    if policy.window is not None:
        return 0.0
    theta = policy.threshold(policy.resumed(failures, 0), placement)
    # An exact policy makes losses good, so its state may drift; its budget pays for none.
    return min(theta, policy.budget.max_state_error)
