"""The quick bound is never below the exact one, and hardly above it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tether.core.accounts import Account, PricedLoss, SlotFacts
from tether.core.amplification import amplification_of
from tether.core.bound import bound_of_query
from tether.core.budget import Budget
from tether.core.placement import Placement
from tether.observe.quick_bound import SMALL, QuickBound

amounts = st.one_of(st.floats(0, 1e6), st.just(math.inf), st.integers(0, 5).map(float))


@st.composite
def accounts(draw: st.DrawFn) -> list[Account]:
    found = []
    for name in ("first", "second")[: draw(st.integers(1, 2))]:
        apart = draw(st.sampled_from(["add", "max"]))
        place = Placement(copies=SMALL + 1, errors_of_copies=apart)
        facts = tuple(
            SlotFacts(
                operator=name,
                slot=slot,
                divergence=draw(st.one_of(st.none(), amounts)) if slot < 4 else 1.5,
                theta=draw(amounts) if slot < 4 else 3.0,
                losses=(PricedLoss(epoch=1, at_most=draw(st.floats(0, 1e6))),) if slot == 2 else (),
                placement=place,
            )
            for slot in range(SMALL + 1)
        )
        found.append(Account(operator=name, budget=Budget(max_state_error=1e7), facts=facts))
    return found


@given(
    accounts(),
    accounts(),
    st.sampled_from([0.0, 0.5, 3.0, math.inf, None]),
)
def test_it_is_never_below_and_hardly_above(
    before: list[Account], books: list[Account], factor: float | None
) -> None:
    spread = None
    if factor is not None:
        links = {("first", "second"): factor} if len(books) > 1 else {}
        spread = amplification_of({one.operator: 1.0 for one in books}, links)
    quick = QuickBound(spread, None)
    quick.sums(books, "losses of these")
    # The same losses, other divergences: the second look is the quick one.
    now = [
        Account(
            operator=one.operator,
            budget=one.budget,
            facts=tuple(
                SlotFacts(
                    operator=fact.operator,
                    slot=fact.slot,
                    divergence=other.divergence,
                    theta=other.theta,
                    losses=fact.losses,
                    placement=fact.placement,
                )
                for fact, other in zip(one.facts, before[0].facts, strict=True)
            ),
        )
        for one in books
    ]
    told, exact = quick.sums(now, "losses of these"), bound_of_query(now, spread)
    assert (told.promised, told.spent, told.left) == (exact.promised, exact.spent, exact.left)
    for mine, true in ((told.at_risk, exact.at_risk), (told.worst_now, exact.worst_now)):
        assert mine >= true
        assert math.isinf(true) or mine <= true * (1 + 1e-6) + 1e-300
