"""The account that a bound is computed from: what each slot has lost, and what it would lose now."""

from __future__ import annotations

import math

import msgspec

from tether.core.budget import Budget  # noqa: TC001 - msgspec reads the annotations at run time
from tether.core.ids import Epoch, Failures, Slot
from tether.core.placement import Placement
from tether.core.windows import Window  # noqa: TC001


class PricedLoss(msgspec.Struct, frozen=True, kw_only=True):
    """One loss of a slot's resident state, and the most that it can have cost.

    Args:
        epoch: The epoch that the slot was about to run.
        at_most: Most divergence lost, in its units; see ``loss_at_most``.
        extra: Most divergence lost on top of that which the budget does not pay for: a backup could not
            be read and an older one was used, or the loss happened under an earlier policy. It widens
            the bound beyond the budget.
        items: Most items lost unprocessed. Whole, or infinite.
        position: Position of the loss in the window's unit; None counts in every window.

    Example:
        >>> PricedLoss(epoch=7, at_most=20.0).extra
        0.0
    """

    epoch: Epoch
    at_most: float
    extra: float = 0.0
    items: float = 0
    position: float | None = None


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one slot now.

    Args:
        operator: Name of the operator.
        slot: Number of the slot.
        divergence: As reported at the last committed epoch, in its units. None: not known.
        theta: θ at that epoch, in units of the divergence.
        failures: k, recoveries so far.
        losses: All that the slot has lost.
        pending_items: Items received, neither processed nor backed up.
        unacked_items: Most items that senders have, or may have, lost before anybody else had them.
        inherited: The part of ``theta`` that an earlier policy allowed and that the budget does not pay
            for.
        placement: The slot's place in the query.
        saved: Whether its backups contain exactly its state, also where the divergence does not show a
            difference.

    Example:
        >>> SlotFacts(operator="count", slot=0, divergence=5.0, theta=10.0).failures
        0
    """

    operator: str
    slot: Slot
    divergence: float | None
    theta: float
    failures: Failures = Failures(0)
    losses: tuple[PricedLoss, ...] = ()
    pending_items: int = 0
    unacked_items: float = 0
    inherited: float = 0.0
    placement: Placement = Placement()
    saved: bool = False


def loss_at_most(theta: float, last_divergence: float | None) -> float:
    """The most that losing a slot costs: θ, or the divergence last reported if that is less.

    The divergence is that of the last committed epoch; rows that came after it are read again. Where the
    driver died too, the divergence is not known, and θ is used.

    Example:
        >>> loss_at_most(100.0, 30.0), loss_at_most(100.0, None)
        (30.0, 100.0)
    """
    if last_divergence is None or math.isnan(last_divergence):
        return theta
    return min(theta, last_divergence)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one operator.

    Args:
        operator: Its name.
        budget: The budget that its thresholds are derived from.
        facts: One entry for each slot.
        window: Of its policy: losses that it has left do not count, faded ones count less.
        now: Position of the stream in the window's unit; without it every loss counts in full.
        exact: Whether its policy makes every loss good, also differences that no divergence shows.

    Example:
        >>> Account(operator="count", budget=Budget(max_state_error=9), facts=()).window
    """

    operator: str
    budget: Budget
    facts: tuple[SlotFacts, ...]
    window: Window | None = None
    now: float | None = None
    exact: bool = False
