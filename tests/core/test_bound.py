"""The bound is a sum of facts, and is kept by every policy that promises one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.accounts import Account, PricedLoss, SlotFacts, loss_at_most
from tether.core.amplification import amplification_of
from tether.core.bound import Bound, bound, bound_of_query
from tether.core.budget import Budget
from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.events import Recovered
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance

from .adversary import chain

if TYPE_CHECKING:
    from tether.policies.policy import Policy


def facts(*losses: PricedLoss, divergence: float | None = 0.0, theta: float = 10.0) -> SlotFacts:
    return SlotFacts(
        operator="count",
        slot=0,
        divergence=divergence,
        theta=theta,
        failures=len(losses),
        losses=losses,
    )


def test_unknown_divergence_counts_as_theta() -> None:
    assert loss_at_most(10.0, None) == 10.0
    assert loss_at_most(10.0, math.nan) == 10.0
    assert loss_at_most(10.0, 3.0) == 3.0
    assert bound([facts(divergence=None)], budget=Budget(max_state_error=20)).at_risk == 10.0


def test_spent_at_risk_and_left() -> None:
    now = bound(
        [
            facts(
                PricedLoss(epoch=2, at_most=40.0),
                PricedLoss(epoch=5, at_most=1.0, items=3),
                divergence=7.0,
            )
        ],
        budget=Budget(max_state_error=100),
    )
    assert (now.spent, now.at_risk, now.worst_now) == (41.0, 7.0, 48.0)
    assert (now.left, now.extra, now.ceiling) == (59.0, 0.0, 100.0)
    assert now.items_lost == 3
    assert now.state_error(alpha=2.0) == 47.0
    assert now.holds


def test_unreadable_backups_widen_the_bound_and_do_not_use_up_the_budget() -> None:
    budget = Budget(max_state_error=100)
    now = bound([facts(PricedLoss(epoch=2, at_most=50.0, extra=200.0))], budget=budget)
    assert (now.spent, now.left, now.extra, now.ceiling) == (250.0, 50.0, 200.0, 300.0)
    assert now.holds
    gone = bound([facts(PricedLoss(epoch=2, at_most=50.0, extra=math.inf))], budget=budget)
    assert (gone.spent, gone.ceiling, gone.left) == (math.inf, math.inf, 50.0)


def test_a_broken_promise_shows() -> None:
    now = bound([facts(divergence=500.0, theta=500.0)], budget=Budget(max_state_error=100))
    assert not now.holds


def test_no_tolerance_promises_nothing_once_anything_is_lost() -> None:
    policy = NoTolerance()
    theta = policy.threshold(policy.initial(), Placement())
    clean = facts(divergence=None, theta=theta)
    before = bound([clean], budget=policy.budget)
    assert (before.spent, before.worst_now) == (0.0, math.inf)
    lost = PricedLoss(epoch=3, at_most=loss_at_most(theta, None))
    after = bound([facts(lost, divergence=None, theta=theta)], budget=policy.budget)
    assert (after.spent, after.left) == (math.inf, 0.0)


def test_mini_batch_is_exact_unless_a_backup_was_unreadable() -> None:
    policy = MiniBatch()
    lost = PricedLoss(epoch=3, at_most=loss_at_most(0.0, None))
    exact = bound([facts(lost, divergence=0.0, theta=0.0)], budget=policy.budget)
    assert (exact.spent, exact.worst_now, exact.ceiling) == (0.0, 0.0, 0.0)
    rotten = PricedLoss(epoch=3, at_most=0.0, extra=8.0)
    assert bound([facts(rotten, theta=0.0)], budget=policy.budget).spent == 8.0


def test_early_operators_count_as_often_as_their_errors_can_grow() -> None:
    first = SlotFacts(
        operator="parse",
        slot=0,
        divergence=2.0,
        theta=5.0,
        losses=(PricedLoss(epoch=1, at_most=3.0),),
    )
    last = SlotFacts(operator="sum", slot=0, divergence=0.0, theta=5.0)
    spread = amplification_of({"parse": 1.0, "sum": 1.0}, {("parse", "sum"): 100.0})
    now = bound([last, first], budget=Budget(max_state_error=1000), amplification=spread)
    assert (now.spent, now.at_risk) == (300.0, 200.0)
    assert (now.slots[0].spent, now.slots[0].at_risk) == (3.0, 2.0)
    assert [(one.operator, one.spent) for one in now.operators] == [("parse", 3.0), ("sum", 300.0)]


def test_copies_that_share_no_key_count_by_the_worst_of_them() -> None:
    place = Placement(copies=2, errors_of_copies="max")
    slots = [
        SlotFacts(
            operator="count",
            slot=slot,
            divergence=1.0 + slot,
            theta=5.0,
            losses=(PricedLoss(epoch=1, at_most=4.0 - 3 * slot, items=2),),
            placement=place,
        )
        for slot in (0, 1)
    ]
    now = bound(slots, budget=Budget(max_state_error=100))
    assert (now.spent, now.at_risk, now.worst_now) == (4.0, 2.0, 5.0)
    assert now.items_lost == 4


def test_windows_forget_and_fade() -> None:
    losses = (
        PricedLoss(epoch=5, at_most=8.0, position=4.0, items=1),
        PricedLoss(epoch=26, at_most=4.0, position=25.0, items=1),
        PricedLoss(epoch=26, at_most=1.0),  # of unknown place: always counts
    )
    budget = Budget(max_state_error=100)
    whole = bound([facts(*losses)], budget=budget)
    assert whole.spent == 13.0
    for window, spent, items in [
        (Hopping(10, "epochs"), 5.0, 1),
        (Sliding(10, "epochs"), 5.0, 1),
        (Sliding(30, "epochs"), 13.0, 2),
        (Decaying(22, "epochs"), 8 * 0.5 + 4 * 0.5 ** (1 / 22) + 1, 2),
    ]:
        now = bound([facts(*losses)], budget=budget, window=window, now=26.0)
        assert now.spent == pytest.approx(spent)
        assert now.items_lost == items


def test_nothing_known_is_nothing_lost() -> None:
    now = bound([], budget=Budget(max_state_error=9))
    assert (now.spent, now.worst_now, now.left) == (0.0, 0.0, 9.0)


@given(
    total=st.floats(0, 1e300),
    copies=st.integers(1, 4),
    length=st.integers(1, 3),
    gain=st.sampled_from([0.0, 0.1, 1.0, 3.0, 7.3]),
    combine=st.sampled_from(["add", "max"]),
    losses=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30),
)
def test_the_bound_of_approximate_is_never_above_its_budget(
    *, total: float, copies: int, length: int, gain: float, combine: str, losses: list
) -> None:
    policy: Policy = Approximate(total)
    spread = chain(length, gain)
    slots = {}
    for stage in range(length):
        place = Placement(copies=copies, errors_of_copies=combine)
        place = spread.placed(str(stage + 1), place, shared=True)
        for slot in range(copies):
            slots[stage, slot] = (place, policy.initial(), ())
    for epoch, which in enumerate(losses):
        if which not in slots:
            continue
        place, state, lost = slots[which]
        # The adversary: every loss comes when the divergence is just θ.
        lost += (PricedLoss(epoch=epoch, at_most=policy.threshold(state, place)),)
        state, _ = policy.step(state, Recovered(epoch=epoch), place)
        slots[which] = (place, state, lost)
    now = bound(
        [
            SlotFacts(
                operator=str(stage + 1),
                slot=slot,
                divergence=policy.threshold(state, place),
                theta=policy.threshold(state, place),
                failures=state.failures,
                losses=lost,
                placement=place,
            )
            for (stage, slot), (place, state, lost) in slots.items()
        ],
        budget=policy.budget,
        amplification=spread,
    )
    assert 0 <= now.spent <= now.worst_now <= now.ceiling == total
    assert now.holds
    assert now.left == pytest.approx(total - now.spent)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(now), type=Bound) == now


def test_what_unreadable_backups_cost_is_told_of_the_operator_and_in_the_worst_case() -> None:
    now = bound(
        [facts(PricedLoss(epoch=2, at_most=50.0, extra=200.0), divergence=5.0)],
        budget=Budget(max_state_error=100),
    )
    assert now.worst_now == 255.0
    (one,) = now.operators
    assert (one.spent, one.own_spent, one.worst_now, one.extra) == (250.0, 250.0, 255.0, 200.0)


def test_a_sum_of_losses_is_never_rounded_down() -> None:
    tiny = PricedLoss(epoch=5, at_most=2.0**-60)
    now = bound([facts(PricedLoss(epoch=2, at_most=1.0), tiny)], budget=Budget(max_state_error=100))
    assert now.spent == math.nextafter(1.0, 2.0)


def test_an_operator_that_is_exact_now_may_have_lost_something_before() -> None:
    lost = facts(PricedLoss(epoch=2, at_most=0.0, extra=5.0))
    accounts = [
        Account(operator="count", budget=Budget(), facts=(lost,), exact=True),
        Account(operator="b", budget=Budget(), facts=(), exact=True),
    ]
    spread = amplification_of({"count": 1.0, "b": 1.0}, {("count", "b"): math.inf})
    now = bound_of_query(accounts, spread)
    assert now.operators[1].unbounded_by == ("count",)
    assert now.unknown == (("count", "b"),)
    never = [
        Account(operator="count", budget=Budget(), facts=(facts(),), exact=True),
        accounts[1],
    ]
    assert bound_of_query(never, spread).operators[1].unbounded_by == ()
