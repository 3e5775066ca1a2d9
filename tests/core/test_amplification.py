"""How errors spread: against plain recursion over time, and as a promise that is kept."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.accounts import Account, PricedLoss, SlotFacts
from tether.core.amplification import Amplification, amplification_of
from tether.core.bound import bound, bound_of_query
from tether.core.budget import Budget
from tether.core.placement import Placement
from tether.core.windows import Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.events import Recovered
from tether.policies.explain import explain_spread

NAMES = "abcd"
factors = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 10.0, math.inf]), st.floats(0, 4, allow_nan=False)
)
graphs = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), factors, max_size=7
)
growths = st.fixed_dictionaries(
    {name: st.sampled_from([1.0, 1.0, 1.0, 3.0, math.inf]) for name in NAMES}
)
losing = st.sets(st.sampled_from(NAMES), min_size=1)


def errors_after(
    steps: int, spread: dict[tuple[str, str], float], own: dict[str, Fraction]
) -> dict[str, Fraction]:
    """Errors that go one link further in every step; a plain iteration, links as declared."""
    errors = dict.fromkeys(NAMES, Fraction(0))
    for _ in range(steps):
        errors = {
            name: own[name]
            + sum((Fraction(spread.get((s, name), 0)) * errors[s] for s in NAMES), Fraction(0))
            for name in NAMES
        }
    return errors


@given(links=graphs, own=st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES}))
def test_the_sum_over_all_walks_is_where_errors_end_up(
    links: dict[tuple[str, str], float], own: dict[str, int]
) -> None:
    spread = amplification_of(dict.fromkeys(NAMES, 1.0), links)
    finite = {link: factor if factor < math.inf else 1e6 for link, factor in links.items()}
    grown = errors_after(40, finite, {name: Fraction(n) for name, n in own.items()})
    for target in NAMES:
        told: Any = sum(
            spread.factor(source, target) * own[source] for source in NAMES if own[source]
        )
        assert grown[target] <= told
        if told < math.inf and all(factor <= 0.25 for factor in links.values()):
            assert float(grown[target]) == pytest.approx(float(told), rel=1e-6)  # and not more


def test_loops_diamonds_and_what_is_not_known() -> None:
    one = dict.fromkeys(NAMES, 1.0)
    diamond = {("a", "b"): 2.0, ("a", "c"): 3.0, ("b", "d"): 1.0, ("c", "d"): 0.5}
    assert amplification_of(one, diamond).factor("a", "d") == Fraction(7, 2)
    half = amplification_of(one, {("a", "b"): 0.5, ("b", "a"): 1.0})
    assert (half.factor("a", "a"), half.factor("a", "b")) == (2, 1)
    endless = amplification_of(one, {("a", "b"): 0.5, ("b", "a"): 2.0, ("b", "c"): 1.0})
    assert endless.unbounded_by("c") == ("a", "b")
    assert (endless.unknown, set(endless.endless) <= {"a", "b"}) == ((), True)
    broken_off = amplification_of(one, {("a", "b"): math.inf, ("b", "c"): 0.0, ("c", "d"): 9.0})
    assert broken_off.unbounded_by("b") == ("a",)
    assert broken_off.unbounded_by("c") == broken_off.unbounded_by("d") == ()
    assert broken_off.unknown == (("a", "b"),)


def test_what_loses_nothing_harms_nobody() -> None:
    spread = amplification_of(
        {"split": 1.0, "count": 1.0}, {("split", "count"): math.inf}, losing=["count"]
    )
    assert (spread.unknown, spread.unbounded_by("count")) == ((), ())
    assert (spread.sharers("count"), spread.sharers("split")) == (1, 1)
    # But what comes through it does.
    through = amplification_of(
        {"sum": 1.0, "grep": 1.0, "count": 1.0},
        {("sum", "grep"): 1.0, ("grep", "count"): math.inf},
        losing=["sum", "count"],
    )
    assert through.unbounded_by("count") == ("sum",)
    assert through.unknown == (("grep", "count"),)


def accounts_of(
    spread: Amplification, policy: Approximate, failures: dict[str, list[int]], copies: int = 2
) -> list[Account]:
    """Books in which every loss came at the worst moment, when the divergence was just θ."""
    accounts = []
    for name in spread.operators:
        place = spread.placed(name, Placement(copies=copies), shared=True)
        facts = []
        for slot in range(copies):
            state, losses = policy.initial(), []
            for _ in range(failures[name][slot] if name in spread.losing else 0):
                losses.append(PricedLoss(epoch=0, at_most=policy.threshold(state, place)))
                state, _ = policy.step(state, Recovered(epoch=0), place)
            theta = policy.threshold(state, place) if name in spread.losing else 0.0
            facts.append(
                SlotFacts(
                    operator=name,
                    slot=slot,
                    divergence=theta,
                    theta=theta,
                    losses=tuple(losses),
                    placement=place,
                )
            )
        accounts.append(Account(operator=name, budget=policy.budget, facts=tuple(facts)))
    return accounts


@given(
    links=graphs,
    growth=growths,
    may_lose=losing,
    total=st.sampled_from([0.0, 1.0, 1000.0, 1e-310, 1e300]),
    failures=st.fixed_dictionaries(
        {name: st.lists(st.integers(0, 5), min_size=2, max_size=2) for name in NAMES}
    ),
)
def test_no_state_is_wrong_by_more_than_the_budget_unless_that_is_told(
    *,
    links: dict[tuple[str, str], float],
    growth: dict[str, float],
    may_lose: set[str],
    total: float,
    failures: dict[str, list[int]],
) -> None:
    spread = amplification_of(growth, links, losing=may_lose)
    policy = Approximate(total)
    accounts = accounts_of(spread, policy, failures)
    now = bound_of_query(accounts, spread, shared=policy.budget)
    assert now.promised in (total, math.inf)
    assert now.spent <= now.worst_now <= now.ceiling == now.promised
    for one in now.operators:
        assert one.own_spent <= one.own_promised <= total
        assert (one.promised == math.inf) == bool(one.unbounded_by)
        assert one.worst_now <= one.promised
        wrong = [name for name in one.unbounded_by if any(failures[name])]
        assert (one.spent == math.inf) == bool(wrong) or total <= 1e-310  # else a share is nought
    # Whoever is named unknown, or a loop, or nobody: the words say which.
    told = explain_spread(spread)
    assert any("nothing is promised" in line for line in told) == any(
        spread.unbounded_by(name) for name in NAMES
    )


@given(links=graphs, growth=growths)
def test_a_budget_is_not_wasted(links: dict[tuple[str, str], float], growth: dict) -> None:
    """Somewhere all that may be lost adds up to Θ, unless factors make some sharers matter less."""
    spread = amplification_of(growth, links)
    for name in NAMES:
        place = spread.placed(name, Placement(), shared=True)
        assert 1 <= place.sharers <= len(NAMES)
        known = [spread.factor(name, other) for other in NAMES]
        largest = max((f for f in known if 0 < f < math.inf), default=Fraction(1))
        assert place.amplification == pytest.approx(float(largest))


def test_without_a_word_on_how_errors_spread_nothing_is_promised() -> None:
    lost = SlotFacts(
        operator="a", slot=0, divergence=0.0, theta=5.0, losses=(PricedLoss(epoch=1, at_most=5.0),)
    )
    other = SlotFacts(operator="b", slot=0, divergence=1.0, theta=5.0)
    now = bound([lost, other], budget=Budget(max_state_error=10))
    assert (now.promised, now.spent) == (math.inf, math.inf)
    assert set(now.unknown) == {("a", "b"), ("b", "a")}
    assert [(one.own_promised, one.own_spent) for one in now.operators] == [
        (10.0, 5.0),
        (10.0, 0.0),
    ]


def test_each_operator_with_a_budget_of_its_own() -> None:
    spread = amplification_of({"a": 2.0, "b": 1.0}, {("a", "b"): 3.0})
    facts = {
        "a": SlotFacts(
            operator="a",
            slot=0,
            divergence=1.0,
            theta=4.0,
            losses=(PricedLoss(epoch=1, at_most=4.0),),
            placement=spread.placed("a", Placement(), shared=False),
        ),
        "b": SlotFacts(operator="b", slot=0, divergence=1.0, theta=4.0),
    }
    budgets = {"a": 16.0, "b": 5.0}

    def told(of: dict[str, float], only: str | None = None) -> Any:
        accounts = [
            Account(operator=n, budget=Budget(max_state_error=of[n]), facts=(facts[n],))
            for n in facts
        ]
        return bound_of_query(accounts, spread, only=only)

    now = told(budgets)
    # Later rows double an error of a, so its own losses may take half of what it may be wrong by.
    assert [one.own_promised for one in now.operators] == [8.0, 5.0]
    assert [one.promised for one in now.operators] == [16.0, 5.0 + 48.0]
    assert [one.spent for one in now.operators] == [8.0, 24.0]
    assert (now.promised, now.spent, now.left) == (53.0, 24.0, 29.0)
    assert told(budgets, "a").spent == 8.0
    assert [slot.operator for slot in told(budgets, "a").slots] == ["a"]


def test_an_exact_operator_leaves_the_promise_of_the_next_one_whole() -> None:
    spread = amplification_of({"a": 1.0, "b": 1.0}, {("a", "b"): math.inf})
    accounts = [
        Account(operator="a", budget=Budget(), facts=(), exact=True),
        Account(operator="b", budget=Budget(max_state_error=7), facts=()),
    ]
    now = bound_of_query(accounts, spread)
    assert (now.promised, now.unknown, now.operators[1].unbounded_by) == (7.0, (), ())


def test_what_one_operators_window_has_left_may_still_be_in_another() -> None:
    """A loss whose effect there is not known is never forgotten; a known one with the window."""
    window = Hopping(4, "epochs")

    def spent(factor: float, kind: Any, now: float) -> float:
        lost = PricedLoss(epoch=1, at_most=5.0, position=1.0)
        facts = SlotFacts(operator="a", slot=0, divergence=0.0, theta=5.0, losses=(lost,))
        budget = Budget(max_state_error=10)
        accounts = [
            Account(operator="a", budget=budget, facts=(facts,), window=kind, now=9.0),
            Account(operator="b", budget=budget, facts=(), window=kind, now=now),
        ]
        spread = amplification_of({"a": 1.0, "b": 1.0}, {("a", "b"): factor})
        return bound_of_query(accounts, spread).operators[1].spent

    assert spent(2.0, window, now=9.0) == 0.0
    assert spent(2.0, window, now=3.0) == 10.0  # the one behind is still in that window
    assert spent(math.inf, window, now=9.0) == math.inf
    assert spent(math.inf, Sliding(2, "epochs"), now=9.0) == math.inf


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_a_loss_that_no_divergence_sees_counts_where_anything_may_come_of_it(
    *, exact: bool, saved: bool, lost: bool
) -> None:
    """A table of which the number of keys counts may lose all its values, at no cost."""
    losses = (PricedLoss(epoch=1, at_most=0.0),) if lost else ()
    facts = SlotFacts(operator="a", slot=0, divergence=0.0, theta=0.0, losses=losses, saved=saved)
    accounts = [
        Account(operator="a", budget=Budget(), facts=(facts,), exact=exact),
        Account(operator="b", budget=Budget(max_state_error=7), facts=()),
    ]
    grown, risked = {"a": 1.0, "b": 1.0}, not exact and not saved
    spread = amplification_of(grown, {("a", "b"): math.inf})
    behind = bound_of_query(accounts, spread).operators[1]
    assert behind.spent == (math.inf if lost else 0.0)
    assert behind.worst_now == (math.inf if lost or risked else 0.0)
    assert behind.promised == (7.0 if exact else math.inf)
    assert behind.unbounded_by == (() if exact and not lost else ("a",))
    known = bound_of_query(accounts, amplification_of(grown, {("a", "b"): 2.0}))
    assert (known.worst_now, known.operators[0].worst_now) == (0.0, 0.0)


def test_lost_items_are_no_loss_that_a_divergence_has_not_seen() -> None:
    fed = PricedLoss(epoch=1, at_most=0.0, items=3)
    facts = SlotFacts(operator="a", slot=0, divergence=0.0, theta=0.0, losses=(fed,))
    accounts = [Account(operator=name, budget=Budget(), facts=()) for name in "ab"]
    accounts[0] = Account(operator="a", budget=Budget(), facts=(facts,))
    spread = amplification_of({"a": 1.0, "b": 1.0}, {("a", "b"): math.inf})
    assert bound_of_query(accounts, spread).operators[1].spent == 0.0
