"""What the losses of each operator can come to in the state of another one, slot by slot and summed up.

The parts of :mod:`tether.core.bound`: each operator's losses in its own units, and the same multiplied
by how much an error grows on its way to the operator that is asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from tether.core.accounts import loss_at_most
from tether.core.amplification import amplification_of
from tether.core.numbers import Exact, add_up, exactly, times
from tether.core.placement import Placement
from tether.core.thresholds import operator_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tether.core.accounts import Account, PricedLoss
    from tether.core.amplification import Amplification
    from tether.core.budget import Budget
    from tether.core.windows import Window


class SlotLosses(NamedTuple):
    """What each slot of an operator has lost, in its own units."""

    paid: list[Exact]
    extra: list[Exact]
    at_risk: list[Exact]
    inherited: list[Exact]


class ErrorSums(NamedTuple):
    """What all operators' losses can come to in the state of one."""

    promised: Exact
    paid: Exact
    extra: Exact
    at_risk: Exact
    inherited: Exact
    worst: Exact


def summed(
    target: Account,
    accounts: Sequence[Account],
    spread: Amplification,
    shared: Budget | None,
    losses_of: Callable[[Account, float | None], SlotLosses],
) -> ErrorSums:
    """Sum up what all operators' losses can come to in the state of one.

    Args:
        target: The operator whose state is asked for.
        accounts: All operators, this one included.
        spread: How much an error of one grows on its way to another.
        shared: The one budget, where all operators share it.
        losses_of: What each slot of an operator has lost, for a position of the stream.
    """
    parts: list[tuple[Exact, ...]] = []
    for source in accounts:
        factor = spread.factor(source.operator, target.operator)
        if not factor or source.operator not in spread.losing:
            continue
        # A loss counts as long as it is in the state of the one that is looked at, which may be some
        # epochs behind the other; for ever, where nobody knows what becomes of it there.
        losses = losses_of(source, target.now if factor < math.inf else None)
        lost, risked = unseen(source, factor)
        losses = _with_unseen(losses, source, lost=lost, risked=risked)
        worst = [lost + more for lost, more in zip(losses.paid, losses.at_risk, strict=True)]
        own = (of_copies(source, slots) for slots in (*losses, worst))
        # What is promised must hold at any time, also when nothing is at risk just now.
        share = share_of(source) + (factor == math.inf and not source.exact)
        parts.append(tuple(times(factor, one) for one in (share, *own)))
    columns = zip(*parts, strict=True) if parts else [()] * len(ErrorSums._fields)
    sums = ErrorSums(*(add_up(column) for column in columns))
    if shared is not None and sums.promised < math.inf:
        return sums._replace(promised=exactly(shared.max_state_error))
    return sums


def unseen(account: Account, factor: Exact) -> tuple[bool, bool]:
    """What no divergence may have seen of an operator, where anything may come of any difference.

    Returns:
        Whether it may have lost such a thing, and whether it may lose one now.
    """
    if factor < math.inf:
        return False, False
    # Items that were lost are priced on their own.
    lost = any(not loss.items for fact in account.facts for loss in fact.losses)
    return lost, not account.exact and not all(fact.saved for fact in account.facts)


def _with_unseen(losses: SlotLosses, account: Account, *, lost: bool, risked: bool) -> SlotLosses:
    """Add one unit where something was not seen: with an infinite factor the sum is infinite then."""
    if lost and account.exact:  # an earlier policy has lost it, and this one does not pay
        losses = losses._replace(extra=[one + 1 for one in losses.extra])
    elif lost:
        losses = losses._replace(paid=[one + 1 for one in losses.paid])
    if risked:
        losses = losses._replace(at_risk=[one + 1 for one in losses.at_risk])
    return losses


def not_known(operators: Sequence[str]) -> Amplification:
    """Links between all operators without a limit: what to assume where nobody has said more."""
    links = {(one, other): math.inf for one in operators for other in operators if one != other}
    return amplification_of(dict.fromkeys(operators, 1.0), links)


def share_of(account: Account) -> Exact:
    """The part of the budget that the operator may use."""
    place = account.facts[0].placement if account.facts else Placement()
    return operator_share(account.budget, place)


def has_lost(account: Account) -> bool:
    """Whether the operator has lost anything that can make an answer wrong."""
    losses = (loss for fact in account.facts for loss in fact.losses)
    return any(loss.at_most or loss.extra or not loss.items for loss in losses)


def losses_of_slots(account: Account, now: float | None) -> SlotLosses:
    """What each slot of an operator has lost, and would lose now.

    Args:
        account: The operator's losses and thresholds.
        now: Position of the stream in the window's unit; without it every loss counts in full.
    """
    window, facts = account.window, account.facts

    def lost(which: str) -> list[Exact]:
        return [
            add_up(
                times(exactly(getattr(loss, which)), exactly(weight_of(loss, window, now)))
                for loss in fact.losses
            )
            for fact in facts
        ]

    at_risk = [exactly(loss_at_most(fact.theta, fact.divergence)) for fact in facts]
    inherited = [exactly(fact.inherited) for fact in facts]
    return SlotLosses(lost("at_most"), lost("extra"), at_risk, inherited)


def of_copies(account: Account, slots: Sequence[Exact]) -> Exact:
    """An operator's error, of those of its slots: their sum, or the largest where none is shared."""
    if not slots:
        return Fraction(0)
    apart = account.facts[0].placement.errors_of_copies == "max"
    return max(slots) if apart else add_up(slots)


def weight_of(loss: PricedLoss, window: Window | None, now: float | None) -> float:
    """How much of a loss still counts, from 0 to 1; it fades where the policy has a window."""
    if window is None or now is None or loss.position is None:
        return 1.0
    return window.remaining(loss.position, now)
