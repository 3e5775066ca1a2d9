"""The bound: how wrong the answer can be, from facts about each slot.

Every loss of resident state is written down as a ``PricedLoss`` with the most that it can have cost. The
sum of these is what the operator's state can be wrong by now; what the slots carry above their
backups is what it would be wrong by in addition if all of them died at this moment. In a query of
several operators, what one has lost shows in those after it: as often as ``Amplification`` says, and
without a limit where that is not known. Nothing here guesses: where a fact is not known, the larger
value is taken.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from tether.core.accounts import Account
from tether.core.error_sums import (
    has_lost,
    losses_of_slots,
    not_known,
    of_copies,
    share_of,
    summed,
    weight_of,
)
from tether.core.ids import Epoch, Failures, Slot
from tether.core.numbers import Exact, exactly, rounded_down, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tether.core.accounts import SlotFacts
    from tether.core.amplification import Amplification
    from tether.core.budget import Budget
    from tether.core.error_sums import SlotLosses
    from tether.core.windows import Window


class SlotBound(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's part in the bound, in units of its own divergence.

    Example:
        >>> SlotBound(operator="count", slot=0, failures=0, spent=0.0, at_risk=5.0).at_risk
        5.0
    """

    operator: str
    slot: Slot
    failures: Failures
    spent: float
    """What its losses can have cost, ``extra`` included."""
    at_risk: float
    """What a loss of it now would add."""


class OperatorBound(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong one operator's state can be, in units of its own divergence.

    Example:
        >>> from tether.core.accounts import SlotFacts
        >>> from tether.core.budget import Budget
        >>> alone = bound([SlotFacts(operator="count", slot=0, divergence=5.0, theta=25.0)],
        ...               budget=Budget(max_state_error=100)).operators[0]
        >>> alone.promised, alone.own_promised, alone.unbounded_by
        (100.0, 100.0, ())
    """

    operator: str
    promised: float
    """The most that it can ever be wrong by, through its own losses and those of the operators before
    it; infinite: nothing is promised."""
    spent: float
    """The most that it can be wrong by now."""
    at_risk: float
    """What would be added if every slot of the query died at this moment."""
    worst_now: float
    """The most that it would then be wrong by."""
    extra: float
    """The part of ``spent`` that is due to unreadable backups, in addition to ``promised``."""
    own_promised: float
    """The most that its own losses can ever remove from its state."""
    own_spent: float
    """The most that they have removed so far."""
    unbounded_by: tuple[str, ...]
    """Operators whose losses can make it wrong by an amount that is not known. With none of them
    ``promised`` holds; with some it holds again for ``own_promised`` only."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong the answer of a query can be.

    Guarantee, for a policy whose slots keep to their thresholds (a decaying window excepted, whose
    sum depends on how fast failures follow each other): 0 ≤ ``spent`` ≤ ``worst_now`` ≤
    ``ceiling``, and ``ceiling`` is the budget unless a backup was unreadable.

    Errors are in units of the divergence of the state that they are in. Of several operators the one
    that can be most wrong counts, with what the losses of those before it can have come to in it.
    Where that is not known (see ``unknown``), ``promised`` is infinite, and so is ``spent`` as soon as
    one of those has lost something; what each operator's own losses can have cost is in
    ``operators``.

    Example:
        >>> from tether.core.accounts import PricedLoss, SlotFacts
        >>> from tether.core.budget import Budget
        >>> one = SlotFacts(operator="count", slot=0, divergence=5.0, theta=25.0, failures=1,
        ...                 losses=(PricedLoss(epoch=3, at_most=40.0),))
        >>> now = bound([one], budget=Budget(max_state_error=100))
        >>> now.spent, now.worst_now, now.left, now.ceiling
        (40.0, 45.0, 60.0, 100.0)
    """

    promised: float
    """Θ: what the policy was told to keep to; infinite where nothing is promised."""
    spent: float
    """The most that the answer, as it stands, can be wrong by: what all losses can have cost."""
    at_risk: float
    """What would be lost in addition if every slot died at this moment."""
    worst_now: float
    """The most that the answer would then be wrong by: at most ``spent`` + ``at_risk``."""
    left: float
    """Θ less what the budget has paid for so far; never below 0."""
    extra: float
    """What was lost beyond Θ, part of ``spent``: through unreadable backups, or under an earlier
    policy or budget that this one does not pay for."""
    ceiling: float
    """The most that the answer can ever be wrong by, unless more backups become unreadable: Θ +
    ``extra``; after a change of policy also, until its first epoch, what may still be lost under the
    earlier one."""
    items_lost: float
    """Most items lost unprocessed so far; each also costs up to α of state, β of output. Whole, or
    infinite."""
    items_at_risk: int
    """Items that would be lost if every slot died at this moment."""
    items_unacked: float
    """Most items that producers have lost, or may have, before a gateway acknowledged them: at most
    Γ. An input item that never came costs as much as one that was lost."""
    slots: tuple[SlotBound, ...]
    """Each slot's part."""
    operators: tuple[OperatorBound, ...]
    """Each operator's own bound, upstream ones first."""
    ahead_bytes: int = 0
    """Bytes of memory used for answers while an input is missing: copies of state, or undo journals."""
    tentative_since: Epoch | None = None
    """First epoch whose rows are tentative: until a twin has taken over nothing is promised for the
    answer, and ``spent`` is infinite. None: nothing is missing."""
    unknown: tuple[tuple[str, str], ...] = ()
    """Senders and receivers between which it is not known how much an error grows; an operator twice
    where that is not known of its own later rows."""

    @property
    def holds(self) -> bool:
        """Whether even the loss of every slot now would keep the answer within ``ceiling``."""
        return self.worst_now <= self.ceiling

    def state_error(self, alpha: float) -> float:
        """Most state error now: ``spent``, and what items that were lost add to it, α each.

        Args:
            alpha: Most that one item changes any state that it leads to, in units of its divergence:
                in a later operator, all outputs that it would have caused together.
        """
        lost = self.items_lost + self.items_unacked
        return self.spent + (lost * alpha if lost and alpha else 0)

    def lost_outputs(self, beta: float) -> float:
        """Most output items that are missing now: β for each item that was lost.

        Args:
            beta: Most output items that one item leads to; of one that was never acknowledged, 1 at
                least, as it is an output of its producer.
        """
        lost = self.items_lost * beta if self.items_lost and beta else 0
        return lost + (self.items_unacked * max(1, beta) if self.items_unacked else 0)


def bound(
    facts: Iterable[SlotFacts],
    *,
    budget: Budget,
    window: Window | None = None,
    now: float | None = None,
    amplification: Amplification | None = None,
) -> Bound:
    """Sum up what the answer of operators that share one budget can be wrong by.

    Args:
        facts: One entry for each slot of each operator.
        budget: Of the policy: ``policy.budget``.
        window: Of the policy: losses that it has left do not count, faded ones count less.
        now: Position of the stream in the window's unit; without it every loss counts in full.
        amplification: How errors spread between several operators; without it that is not known.

    Example:
        >>> from tether.core.accounts import PricedLoss, SlotFacts, loss_at_most
        >>> from tether.policies.no_tolerance import NoTolerance
        >>> gone = PricedLoss(epoch=3, at_most=loss_at_most(float("inf"), None))
        >>> facts = SlotFacts(operator="count", slot=0, divergence=None, theta=float("inf"),
        ...                   failures=1, losses=(gone,))
        >>> bound([facts], budget=NoTolerance().budget).spent
        inf
    """
    known = sorted(facts, key=lambda fact: (fact.operator, fact.slot))
    accounts = [
        Account(operator=name, budget=budget, facts=tuple(group), window=window, now=now)
        for name, group in groupby(known, key=lambda fact: fact.operator)
    ]
    return bound_of_query(accounts, amplification, shared=budget)


def bound_of_query(
    accounts: Sequence[Account],
    amplification: Amplification | None = None,
    *,
    shared: Budget | None = None,
    only: str | None = None,
) -> Bound:
    """Sum up what the answer of a query can be wrong by, whatever policies its operators have.

    Args:
        accounts: The account of each operator, upstream ones first.
        amplification: How errors spread between them; without it that is not known.
        shared: The one budget, where all operators share it: what is promised then.
        only: The operator whose state is asked for; by default all of them.

    Example:
        >>> from tether.core.accounts import PricedLoss, SlotFacts
        >>> from tether.core.amplification import amplification_of
        >>> from tether.core.budget import Budget
        >>> lost = PricedLoss(epoch=3, at_most=2.0)
        >>> facts = SlotFacts(operator="a", slot=0, divergence=0.0, theta=5.0, losses=(lost,))
        >>> first = Account(operator="a", budget=Budget(max_state_error=10), facts=(facts,))
        >>> second = Account(operator="b", budget=Budget(max_state_error=7), facts=())
        >>> tripled = amplification_of({"a": 1.0, "b": 1.0}, {("a", "b"): 3.0})
        >>> now = bound_of_query([first, second], tripled)
        >>> [(one.operator, one.spent, one.promised) for one in now.operators]
        [('a', 2.0, 10.0), ('b', 6.0, 37.0)]
        >>> bound_of_query([first, second]).spent  # nobody said what an error of a does to b
        inf
    """
    spread = amplification or not_known([account.operator for account in accounts])
    drawn: dict[tuple[str, float | None], SlotLosses] = {}

    def losses_of(account: Account, now: float | None) -> SlotLosses:
        key = (account.operator, now)  # all operators after this one need them
        return drawn[key] if key in drawn else drawn.setdefault(key, losses_of_slots(account, now))

    targets = [account for account in accounts if only in (None, account.operator)]
    told = [summed(target, accounts, spread, shared, losses_of) for target in targets]
    own = [losses_of(account, account.now) for account in targets]
    # Under an exact policy an operator loses nothing that others could come to feel; but it may have
    # lost something under another one before.
    inexact = {
        one.operator
        for one in accounts
        if one.operator in spread.losing and (share_of(one) or has_lost(one) or not one.exact)
    }

    def most(sums: Iterable[Exact]) -> Exact:
        return max(sums, default=Fraction(0))

    # What a source has lost is counted for every operator behind it, and was lost once.
    facts = {(f.operator, f.slot): (one, f) for one in targets for f in one.facts}
    once = list(facts.values())
    promised = most(one.promised for one in told)
    if shared is not None and promised < math.inf:
        promised = exactly(shared.max_state_error)  # where the parts leave some of it unused, too
    within, extra = most(one.paid for one in told), most(one.extra for one in told)
    return Bound(
        promised=rounded_up(promised),
        spent=rounded_up(most(one.paid + one.extra for one in told)),
        at_risk=rounded_up(most(one.at_risk for one in told)),
        worst_now=rounded_up(most(one.worst + one.extra for one in told)),
        left=0.0 if within >= promised else rounded_down(promised - within),
        extra=rounded_up(extra),
        ceiling=rounded_up(promised + most(one.extra + one.inherited for one in told)),
        items_lost=sum(
            loss.items
            for account, fact in once
            for loss in fact.losses
            if weight_of(loss, account.window, account.now)
        ),
        items_at_risk=sum(fact.pending_items for _, fact in once),
        items_unacked=sum(fact.unacked_items for _, fact in once),
        slots=tuple(
            SlotBound(
                operator=fact.operator,
                slot=fact.slot,
                failures=fact.failures,
                spent=rounded_up(lost + wider),
                at_risk=rounded_up(risk),
            )
            for account, losses in zip(targets, own, strict=True)
            for fact, lost, wider, risk, _ in zip(account.facts, *losses, strict=True)
        ),
        operators=tuple(
            OperatorBound(
                operator=account.operator,
                promised=rounded_up(one.promised),
                spent=rounded_up(one.paid + one.extra),
                at_risk=rounded_up(one.at_risk),
                worst_now=rounded_up(one.worst + one.extra),
                extra=rounded_up(one.extra),
                own_promised=rounded_up(share_of(account)),
                own_spent=rounded_up(
                    of_copies(account, losses.paid) + of_copies(account, losses.extra)
                ),
                unbounded_by=tuple(
                    name for name in spread.unbounded_by(account.operator) if name in inexact
                ),
            )
            for account, one, losses in zip(targets, told, own, strict=True)
        ),
        unknown=tuple(
            (sender, receiver)
            for sender, receiver in spread.unknown
            if any(spread.factor(name, sender) for name in inexact)
        ),
    )
