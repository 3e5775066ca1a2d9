"""The bound: how wrong the answer can be, from facts about each slot.

Every loss of resident state is written down as a ``Loss`` with the most that it can have cost. The
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
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.core.accounts import Account, Loss, SlotFacts, loss_at_most
from tether.core.amplification import amplification_of
from tether.core.ids import Epoch, Failures, Slot
from tether.core.numbers import Exact, add_up, exactly, rounded_down, rounded_up, times
from tether.core.placement import Placement
from tether.core.thresholds import operator_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tether.core.amplification import Amplification
    from tether.core.budget import Budget
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
    """How much unreadable backups have widened it; part of ``spent``, beyond ``promised``."""
    own_promised: float
    """The most that its own losses, alone, can ever take out of its state."""
    own_spent: float
    """The most that they have taken so far."""
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
        >>> from tether.core.budget import Budget
        >>> one = SlotFacts(operator="count", slot=0, divergence=5.0, theta=25.0, failures=1,
        ...                 losses=(Loss(epoch=3, at_most=40.0),))
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
    """The most that the answer can ever be wrong by, unless backups rot again: Θ + ``extra``, and until
    the first epoch under another policy what may still be lost of the time before."""
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
    """Memory that answers without a missing input take: copies of state, or what undoes them."""
    tentative_since: Epoch | None = None
    """First epoch whose rows are tentative: until a twin has taken over nothing is promised of the
    answer as it stands, and ``spent`` is infinite. None: nothing is missing."""
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
        >>> from tether.policies.no_tolerance import NoTolerance
        >>> gone = Loss(epoch=3, at_most=loss_at_most(float("inf"), None))
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
        accounts: The books of each operator, upstream ones first.
        amplification: How errors spread between them; without it that is not known.
        shared: The one budget, where all operators share it: what is promised then.
        only: The operator whose state is asked for; by default all of them.

    Example:
        >>> from tether.core.budget import Budget
        >>> lost = Loss(epoch=3, at_most=2.0)
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
    spread = amplification or _not_known([account.operator for account in accounts])
    drawn: dict[tuple[str, float | None], _Books] = {}

    def books_of(account: Account, now: float | None) -> _Books:
        key = (account.operator, now)  # every operator behind this one asks for them
        return drawn[key] if key in drawn else drawn.setdefault(key, _books(account, now))

    targets = [account for account in accounts if only in (None, account.operator)]
    told = [_summed(target, accounts, spread, shared, books_of) for target in targets]
    own = [books_of(account, account.now) for account in targets]
    # Under an exact policy an operator loses nothing that others could come to feel; but it may have
    # lost something under another one before.
    inexact = {
        one.operator
        for one in accounts
        if one.operator in spread.losing and (_share(one) or _has_lost(one) or not one.exact)
    }

    def most(sums: Iterable[Exact]) -> Exact:
        return max(sums, default=Fraction(0))

    # What a source has lost is in the books of every operator behind it, and was lost once.
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
            if _weight(loss, account.window, account.now)
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
            for account, books in zip(targets, own, strict=True)
            for fact, lost, wider, risk, _ in zip(account.facts, *books, strict=True)
        ),
        operators=tuple(
            OperatorBound(
                operator=account.operator,
                promised=rounded_up(one.promised),
                spent=rounded_up(one.paid + one.extra),
                at_risk=rounded_up(one.at_risk),
                worst_now=rounded_up(one.worst + one.extra),
                extra=rounded_up(one.extra),
                own_promised=rounded_up(_share(account)),
                own_spent=rounded_up(
                    _of_copies(account, books.paid) + _of_copies(account, books.extra)
                ),
                unbounded_by=tuple(
                    name for name in spread.unbounded_by(account.operator) if name in inexact
                ),
            )
            for account, one, books in zip(targets, told, own, strict=True)
        ),
        unknown=tuple(
            (sender, receiver)
            for sender, receiver in spread.unknown
            if any(spread.factor(name, sender) for name in inexact)
        ),
    )


class _Books(NamedTuple):
    """What each slot of an operator has lost, in its own units."""

    paid: list[Exact]
    extra: list[Exact]
    at_risk: list[Exact]
    inherited: list[Exact]


class _Sums(NamedTuple):
    """What all operators' losses can come to in the state of one."""

    promised: Exact
    paid: Exact
    extra: Exact
    at_risk: Exact
    inherited: Exact
    worst: Exact


def _summed(
    target: Account,
    accounts: Sequence[Account],
    spread: Amplification,
    shared: Budget | None,
    books_of: Callable[[Account, float | None], _Books],
) -> _Sums:
    parts: list[tuple[Exact, ...]] = []
    for source in accounts:
        factor = spread.factor(source.operator, target.operator)
        if not factor or source.operator not in spread.losing:
            continue
        # A loss counts as long as it is in the state of the one that is looked at, which may be some
        # epochs behind the other; for ever, where nobody knows what becomes of it there.
        books = books_of(source, target.now if factor < math.inf else None)
        lost, risked = unseen(source, factor)
        books = _with_unseen(books, source, lost=lost, risked=risked)
        worst = [lost + more for lost, more in zip(books.paid, books.at_risk, strict=True)]
        own = (_of_copies(source, slots) for slots in (*books, worst))
        # What is promised must hold at any time, also when nothing is at risk just now.
        share = _share(source) + (factor == math.inf and not source.exact)
        parts.append(tuple(times(factor, one) for one in (share, *own)))
    columns = zip(*parts, strict=True) if parts else [()] * len(_Sums._fields)
    sums = _Sums(*(add_up(column) for column in columns))
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


def _with_unseen(books: _Books, account: Account, *, lost: bool, risked: bool) -> _Books:
    """The books, and one unit more where something was not seen: for an infinite factor it is enough."""
    if lost and account.exact:  # an earlier policy has lost it, and this one does not pay
        books = books._replace(extra=[one + 1 for one in books.extra])
    elif lost:
        books = books._replace(paid=[one + 1 for one in books.paid])
    if risked:
        books = books._replace(at_risk=[one + 1 for one in books.at_risk])
    return books


def _not_known(operators: Sequence[str]) -> Amplification:
    """As long as nobody says how they are linked, an error of any may show in any, without limit."""
    links = {(one, other): math.inf for one in operators for other in operators if one != other}
    return amplification_of(dict.fromkeys(operators, 1.0), links)


def _share(account: Account) -> Exact:
    place = account.facts[0].placement if account.facts else Placement()
    return operator_share(account.budget, place)


def _has_lost(account: Account) -> bool:
    losses = (loss for fact in account.facts for loss in fact.losses)
    return any(loss.at_most or loss.extra or not loss.items for loss in losses)


def _books(account: Account, now: float | None) -> _Books:
    window, facts = account.window, account.facts

    def lost(which: str) -> list[Exact]:
        return [
            add_up(
                times(exactly(getattr(loss, which)), exactly(_weight(loss, window, now)))
                for loss in fact.losses
            )
            for fact in facts
        ]

    at_risk = [exactly(loss_at_most(fact.theta, fact.divergence)) for fact in facts]
    inherited = [exactly(fact.inherited) for fact in facts]
    return _Books(lost("at_most"), lost("extra"), at_risk, inherited)


def _of_copies(account: Account, slots: Sequence[Exact]) -> Exact:
    """An operator's error, of those of its slots: their sum, or the largest where none is shared."""
    if not slots:
        return Fraction(0)
    apart = account.facts[0].placement.errors_of_copies == "max"
    return max(slots) if apart else add_up(slots)


def _weight(loss: Loss, window: Window | None, now: float | None) -> float:
    if window is None or now is None or loss.position is None:
        return 1.0
    return window.remaining(loss.position, now)
