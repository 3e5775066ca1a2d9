"""The account of losses: whatever fails, and whatever policy comes after, all that was lost is told."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.accounts import SlotFacts, loss_at_most
from tether.core.bound import Bound, bound
from tether.core.losses import LossRecord
from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.barrier import Barrier
from tether.policies.events import EpochApplied, Recovered
from tether.policies.events import WindowEnd as End
from tether.policies.instructions import BackUpState
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.terms import counted, not_paid, terms_of
from tether.policies.upstream_backup import UpstreamBackup
from tether.policies.window_effects import WindowedState

if TYPE_CHECKING:
    from tether.policies.policy import Policy

PLACE = Placement()
POLICIES: list[Policy] = [
    Approximate(40),
    Approximate(1000),
    Approximate(3),
    Approximate(40, window=Sliding(3, "epochs")),
    Approximate(40, window=Hopping(4, "epochs")),
    Approximate(40, window=Sliding(5, "items")),
    Approximate(40, window=Decaying(2, "epochs")),
    MiniBatch(),
]


class Durable(NamedTuple):
    """What a record of a slot says: all that a driver or a slot can know after a death."""

    epoch: int
    theta: float
    under: str
    state: WindowedState
    divergence: float
    lineage: int


class Slot:
    """A slot whose state is one number, and the driver that keeps its books."""

    def __init__(self, policy: Policy) -> None:
        self.durable: Durable | None = None
        self.account: dict[str, LossRecord] = {}
        self.epoch = 0
        self.lost: list[tuple[int, Fraction]] = []
        """The truth: in which epoch, and how much."""
        self.live: tuple[float, WindowedState, str] | None = (0.0, WindowedState(), "")
        """How far the resident state is from its backup, and what is remembered beside it."""
        self.known: float | None = None
        self.lineage = 0
        self.restart(policy)

    def restart(self, policy: Policy) -> None:
        """Another driver: what the one before knew of the divergence is gone."""
        self.policy, self.terms, self.known = policy, terms_of(policy, PLACE), None

    def run(self, drift: float, *, ends: bool = True) -> None:
        """An epoch that drifts away from the backup; unless it ends, it changes nothing for good."""
        away, state, lineage, found = self._attach()
        away += drift
        event = EpochApplied(epoch=self.epoch, divergence=away, items=1)
        state, asked = self.policy.step(state, event, PLACE)
        if any(isinstance(one, BackUpState) and one.wait for one in asked):
            away = next(one.target for one in asked if isinstance(one, BackUpState))
        window = getattr(self.policy, "window", None)
        if isinstance(window, Hopping) and not (self.epoch + 1) % window.length:
            state, _ = self.policy.step(state, End(epoch=self.epoch, end=self.epoch + 1.0), PLACE)
        theta = self.policy.threshold(state, PLACE)
        assert away <= theta
        if not ends:
            return
        if found is not None:
            loss, gone = found
            self.account[loss.lost] = loss
            self.lost.append((self.epoch, Fraction(gone)))
        news = self.durable is None or (theta, self.terms) != self.durable[1:3]
        if news or found or asked:
            self.durable = Durable(self.epoch, theta, self.terms, state, away, lineage)
        self.live, self.lineage, self.known = (away, state, self.terms), lineage, away
        self.epoch += 1

    def _attach(self) -> tuple[float, WindowedState, int, tuple[LossRecord, float] | None]:
        if self.live is not None:
            away, state, under = self.live
            if under != self.terms:
                state = self.policy.resumed(len(self.account), state.items)
            return away, state, self.lineage, None
        durable = self.durable
        if durable is None:
            return 0.0, WindowedState(), self.lineage + 1, None  # no epoch was ever committed
        state = durable.state
        if durable.under != self.terms:
            state = self.policy.resumed(len(self.account), state.items)
        at_the_end = durable.divergence if durable.epoch == self.epoch - 1 else None
        loss = LossRecord(
            lost=str(durable.lineage),
            epoch=self.epoch,
            at_most=loss_at_most(loss_at_most(durable.theta, at_the_end), self.known),
            theta=durable.theta,
            failures=state.failures,
            under=durable.under,
        )
        state, _ = self.policy.step(state, Recovered(epoch=self.epoch), PLACE)
        return 0.0, state, self.lineage + 1, (loss, self.gone)

    def lose(self) -> None:
        if self.live is not None:
            self.gone, self.live = self.live[0], None

    def bound(self) -> Bound:
        window = getattr(self.policy, "window", None)
        durable = self.durable
        theta, inherited = 0.0, 0.0
        if durable is not None:
            theta = durable.theta
            if durable.under != self.terms:
                inherited = not_paid(theta, self.policy, PLACE, len(self.account))
        facts = SlotFacts(
            operator="sum",
            slot=0,
            divergence=self.known,
            theta=theta,
            losses=counted(self.account.values(), self.policy, PLACE, window),
            inherited=inherited,
        )
        now = float(self.epoch - 1) if window is not None and window.by == "epochs" else None
        return bound([facts], budget=self.policy.budget, window=window, now=now)

    def truth(self) -> Fraction:
        """What the answer lacks, by the window of the answer."""
        window = getattr(self.policy, "window", None)
        if window is None or window.by != "epochs":
            return sum((gone for _, gone in self.lost), Fraction(0))
        now = float(self.epoch - 1)
        return sum(
            (gone * Fraction(window.remaining(at, now)) for at, gone in self.lost), Fraction(0)
        )


steps = st.one_of(
    st.tuples(st.just("run"), st.floats(0, 60)),
    st.tuples(st.just("run"), st.sampled_from([1.0, 5.0, 10.0, 20.0])),
    st.tuples(st.just("break off"), st.floats(0, 60)),
    st.tuples(st.just("lose"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("change"), st.integers(0, len(POLICIES) - 1)),
)


@settings(max_examples=400)
@given(first=st.integers(0, len(POLICIES) - 1), life=st.lists(steps, max_size=40))
def test_no_less_is_told_than_was_lost(first: int, life: list) -> None:
    slot = Slot(POLICIES[first])
    for what, how in life:
        if what == "run":
            slot.run(how)
        elif what == "break off":  # an epoch that did not commit, whoever died
            slot.run(how, ends=False)
        elif what == "lose":
            slot.lose()
        elif what == "restart":
            slot.restart(slot.policy)
        else:
            slot.restart(POLICIES[how])
        now = slot.bound()
        assert slot.truth() <= Fraction(now.spent) * Fraction(1 + 1e-12)
        whole = sum(Fraction(loss.cost) for loss in slot.account.values())
        assert sum(gone for _, gone in slot.lost) <= whole
        window = getattr(slot.policy, "window", None)
        if window is None:
            assert now.holds
        if window is None or (window.by == "epochs" and not isinstance(window, Decaying)):
            # What the budget pays for stays within it, whoever came before.
            assert now.spent - now.extra <= now.promised * (1 + 1e-12)


@given(
    changes=st.lists(st.integers(0, 2), min_size=1, max_size=30),
    exact=st.booleans(),
)
def test_a_budget_pays_for_all_losses_under_smaller_ones(changes: list[int], exact: bool) -> None:
    """Approximate, exact, approximate again…: with the largest budget in the end, Θ holds for all."""
    policies = [Approximate(3), Approximate(40), MiniBatch() if exact else Approximate(17)]
    slot = Slot(policies[0])
    for which in changes:
        slot.restart(policies[which])
        slot.run(1000.0)
        slot.run(slot.policy.threshold(slot.durable.state, PLACE) / 2)  # type: ignore[union-attr]
        slot.lose()
        slot.run(0.0)
    slot.restart(Approximate(40))
    now = slot.bound()
    assert now.extra == 0
    assert slot.truth() <= now.spent <= 40


def record(at_most: float, epoch: int, under: str = "other", **more: float) -> LossRecord:
    return LossRecord(
        lost=str(epoch),
        epoch=epoch,
        at_most=at_most,
        theta=at_most,
        failures=0,
        under=under,
        **more,
    )


def test_of_losses_under_other_terms_the_budget_pays_what_it_would_have_allowed() -> None:
    losses = counted([record(30.0, 5), record(30.0, 2)], Approximate(80), PLACE, None)
    assert [(loss.epoch, loss.at_most, loss.extra) for loss in losses] == [
        (2, 30.0, 0.0),
        (5, 20.0, 10.0),
    ]


def test_an_exact_policy_pays_for_nothing_and_one_without_backups_for_all() -> None:
    for policy in (MiniBatch(), UpstreamBackup(), Barrier(3)):
        (loss,) = counted([record(30.0, 5)], policy, PLACE, None)
        assert (loss.at_most, loss.extra) == (0.0, 30.0)
    (loss,) = counted([record(math.inf, 5)], NoTolerance(), PLACE, None)
    assert (loss.at_most, loss.extra) == (math.inf, 0.0)
    (loss,) = counted([record(math.inf, 5)], Approximate(10), PLACE, None)
    assert (loss.at_most, loss.extra) == (5.0, math.inf)


def test_an_exact_policy_does_not_pay_for_a_loss_under_its_own_terms_either() -> None:
    """Another policy found it, which could not make it good: the ceiling is to say so."""
    for policy in (MiniBatch(), UpstreamBackup(), Barrier(3)):
        (loss,) = counted([record(30.0, 5, terms_of(policy, PLACE))], policy, PLACE, None)
        assert (loss.at_most, loss.extra) == (0.0, 30.0)


def test_losses_under_the_same_terms_are_paid_however_many_windows_ago() -> None:
    policy = Approximate(40, window=Sliding(3, "epochs"))
    mine = [record(20.0, epoch, terms_of(policy, PLACE)) for epoch in (1, 10, 20)]
    losses = counted(mine, policy, PLACE, policy.window)
    assert [(loss.at_most, loss.extra, loss.position) for loss in losses] == [
        (20.0, 0.0, 1.0),
        (20.0, 0.0, 10.0),
        (20.0, 0.0, 20.0),
    ]


@given(whole=st.floats(0, 1e300), total=st.floats(0, 1e300))
def test_what_is_paid_and_what_is_not_are_the_whole(whole: float, total: float) -> None:
    (loss,) = counted([record(whole, 1)], Approximate(total), PLACE, None)
    assert Fraction(loss.at_most) + Fraction(loss.extra) >= Fraction(whole)
    assert loss.at_most <= whole


def test_terms_are_what_thresholds_depend_on() -> None:
    same = {
        terms_of(policy, PLACE)
        for policy in (
            Approximate(40),
            Approximate(40.0, early=0.7),
            Approximate(40, backup_target=0),
        )
    }
    assert len(same) == 1
    policies = [*POLICIES, Approximate(40, 1), Approximate(40, 0, 1), NoTolerance(), Barrier(3)]
    places = [PLACE, Placement(copies=2), Placement(errors_of_copies="max")]
    names = [terms_of(policy, place) for policy in policies for place in places]
    assert len(set(names)) == len(names)


def test_records_come_back_from_a_store_infinities_and_all() -> None:
    loss = record(math.inf, 3, extra=math.inf, items=math.inf)
    stored = msgspec.msgpack.encode(loss)
    assert msgspec.msgpack.decode(stored, type=LossRecord) == loss
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(
            msgspec.msgpack.encode(msgspec.structs.replace(loss, at_most=-1.0)), type=LossRecord
        )


def test_all_of_a_record_is_told_under_whatever_terms() -> None:
    lost = LossRecord(
        lost="a", epoch=3, at_most=4.0, theta=9.0, failures=0, under="?", extra=7.0, items=5
    )
    (loss,) = counted([lost], Approximate(80), PLACE, None)
    assert (loss.at_most, loss.extra, loss.items) == (4.0, 7.0, 5)


def test_a_budget_that_windows_give_back_pays_for_none_of_other_terms() -> None:
    policy = Approximate(80, window=Sliding(3, "epochs"))
    (loss,) = counted([record(30.0, 5)], policy, PLACE, policy.window)
    assert (loss.at_most, loss.extra) == (0.0, 30.0)
    assert not_paid(30.0, policy, PLACE, losses=0) == 30.0


def test_what_is_taken_over_from_other_terms() -> None:
    for policy in (Approximate(10), UpstreamBackup(), Barrier(5)):
        taken = policy.resumed(losses=3, items=9)
        assert taken == policy.state_type(failures=3, items=9)
