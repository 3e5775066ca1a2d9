"""L and Γ of a query reach its gateways, and what they lose is in the bound, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tether.core.accounts import Account, PricedLoss, SlotFacts
from tether.core.bound import bound_of_query
from tether.core.budget import Budget
from tether.core.placement import Placement
from tether.core.thresholds import outputs_of_item, whole_share
from tether.sources.gateway.census import share_of_losses
from tether.spark.gateways.shares import gateway_share


@given(
    l=st.integers(0, 10**6),
    gateways=st.integers(1, 5),
    length=st.integers(1, 4),
    senders=st.integers(0, 3),
    fan_out=st.integers(1, 4),
)
def test_gateways_and_feedback_together_stay_within_l(
    l: int,  # noqa: E741
    gateways: int,
    length: int,
    senders: int,
    fan_out: int,
) -> None:
    senders = min(senders, length - 1)
    budget = Budget(max_lost_items=l)
    places = [
        Placement(position=at, length=length, fan_out=float(fan_out)) for at in range(1, length + 1)
    ]
    share = gateway_share([budget], places, gateways=gateways, senders=senders)
    feedback = [whole_share(budget, place).l * float(outputs_of_item(place)) for place in places]
    worst = share.max_lost * gateways * float(outputs_of_item(places[0]))
    assert worst + sum(sorted(feedback)[:senders]) <= l * (1 + 1e-9)
    over_all_crashes = sum(share_of_losses(share.max_lost, failures) for failures in range(60))
    assert over_all_crashes <= share.max_lost


def test_what_a_source_lost_counts_once_however_many_operators_follow_it() -> None:
    lost = SlotFacts(
        operator="s at gateway",
        slot=0,
        divergence=0.0,
        theta=0.0,
        losses=(PricedLoss(epoch=0, at_most=0.0, items=7),),
        pending_items=3,
        unacked_items=2,
    )
    accounts = [
        Account(operator=name, budget=Budget(max_state_error=10), facts=(lost,)) for name in "ab"
    ]
    now = bound_of_query(accounts)
    assert (now.items_lost, now.items_at_risk, now.items_unacked) == (7, 3, 2)
    assert bound_of_query(accounts, only="b").items_lost == 7
    assert now.state_error(alpha=2) == 18
    assert now.lost_outputs(beta=3) == 27
