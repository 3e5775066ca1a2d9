"""AF-Stream's promises (2019 §3.5) against an adversary, in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate

from .adversary import Now, Slot, advance, close_windows, query, state_error

START = Now(epoch=-1, newest=0.0, watermark=-5.0)
amounts = st.one_of(st.sampled_from([0.0, 1.0, 1000.0, 1e-320, 1e300]), st.floats(0, 1e9))
drifts = st.none() | st.floats(0, 1e6)
# An epoch (drift, rows, steps of event time and lateness) or a loss (how its recovery crashes).
epochs = st.tuples(
    st.just("epoch"), drifts, st.integers(0, 9), st.tuples(st.floats(0, 4), st.floats(0, 6))
)
losses = st.tuples(
    st.just("loss"), st.integers(0, 99), st.lists(st.booleans(), max_size=3), st.booleans()
)
# The worst: the divergence is at θ, and then it is lost.
worst = st.tuples(st.just("worst"), st.integers(0, 99))
stories = st.lists(st.one_of(epochs, losses, worst, worst), max_size=40)


def play(slots: list[Slot], story: list, spot: str = "newest") -> None:
    now = START
    for kind, *what in story:
        if kind == "epoch":
            drift, rows, times = what
            before, now = now, advance(slots, now, times)
            for slot in slots:
                rows_before = slot.rows
                slot.run(now, drift, rows)
                if isinstance(slot.policy.window, Hopping):
                    close_windows(slot, slot.policy.window, before, now, rows_before)
            continue
        slot = slots[what[0] % len(slots)]
        crashes, known = (what[1], what[2]) if kind == "loss" else ([], kind != "hidden")
        if kind != "loss":
            slot.divergence = slot.theta
        slot.lose(now, where(slot, now, spot), crashes, known=known)


def where(slot: Slot, now: Now, spot: str) -> float:
    """Where the loss hurts, in the window's unit; among event times, the adversary's choice."""
    window = slot.policy.window
    if window is None:
        return 0.0
    if window.by == "seconds":
        # Answers up to the watermark are out, and nothing newer than the newest has come.
        return now.newest if spot == "newest" else now.watermark
    newest = now.epoch if window.by == "epochs" else slot.rows - 1
    # A hopping window that is complete has its answer out too: what is lost now is of the next.
    return newest + isinstance(window, Hopping)


@settings(max_examples=100)
@given(
    budget=st.tuples(amounts, amounts, amounts),
    copies=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    fan_out=st.sampled_from([0.0, 0.3, 1.0, 2.0, 7.7]),
    gain=st.sampled_from([0.0, 0.3, 1.0, 2.0, 7.7]),
    combine=st.sampled_from(["add", "max"]),
    early=st.sampled_from([0.6, 1.0]),
    rounding=st.sampled_from([0.0, 0.09]),
    story=stories,
    alpha=st.integers(0, 5),
)
def test_any_failures_of_any_slots_stay_within_the_budget(
    *,
    budget: tuple,
    copies: list,
    fan_out: float,
    gain: float,
    combine: str,
    early: float,
    rounding: float,
    story: list,
    alpha: int,
) -> None:
    policy = Approximate(*budget, early=early, rounding=rounding * early)
    slots = query(policy, copies=copies, fan_out=fan_out, combine=combine, gain=gain)
    play(slots, story)
    theta, most, gamma = (Fraction(part) for part in budget)
    items = sum((toll.items for slot in slots for toll in slot.losses), Fraction(0))
    unacked = sum((toll.unacked for slot in slots for toll in slot.losses), Fraction(0))
    beta = max(Fraction(1), Fraction(fan_out))
    assert state_error(slots, gain=gain) <= theta
    assert state_error(slots, gain=gain) + alpha * items <= theta + alpha * most  # Θ + Lα
    assert unacked + beta * items <= gamma + beta * most  # Γ + Lβ


@given(total=st.floats(1e-3, 1e9), failures=st.integers(1, 30), copies=st.integers(1, 4))
def test_the_budget_is_used_and_not_just_kept(total: float, failures: int, copies: int) -> None:
    slots = query(Approximate(total), copies=[copies], fan_out=1.0, combine="add")
    play(slots, [("worst", slot) for slot in range(copies)] * failures)
    assert float(state_error(slots)) >= total * (1 - 0.5**failures) * (1 - 1e-12)


kinds = st.sampled_from([Hopping, Sliding])
units = st.sampled_from(["seconds", "epochs", "items"])
windows = st.builds(lambda kind, length, by: kind(length, by), kinds, st.integers(1, 4), units)
# Small worlds whole: what breaks a window breaks in a few moves, if they are the right ones, and
# random stories seldom are. An epoch on time, a long one with rows far ahead of the watermark, a
# loss at θ, and one of unknown place.
EPOCHS = [("epoch", 0.0, 1, (1.0, 0.0)), ("epoch", 0.0, 2, (2.0, 3.0))]
LOSSES = [("worst", 0), ("hidden", 0)]


@pytest.mark.parametrize(
    ("by", "spot"),
    [("seconds", "oldest"), ("seconds", "newest"), ("epochs", "newest"), ("items", "newest")],
)
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("kind", [Hopping, Sliding])
def test_in_any_one_window_the_losses_stay_within_the_budget(
    kind: type, length: int, by: str, spot: str
) -> None:
    policy = Approximate(1024.0, window=kind(length, by))
    anything = EPOCHS + LOSSES
    for story in product(EPOCHS, LOSSES, LOSSES, anything, anything, LOSSES):
        slots = query(policy, copies=[1], fan_out=1.0, combine="add")
        play(slots, list(story), spot)
        worst_window(slots, policy.window, Fraction(1024))


def worst_window(slots: list[Slot], window: Hopping | Sliding, allowed: Fraction) -> None:
    for slot in slots:
        for toll in slot.losses:
            now = toll.position  # any window that holds losses ends, at the earliest, at one
            if isinstance(window, Hopping):
                start = math.floor(now / window.length) * window.length
                end = start + window.length
                lost = state_error(slots, lambda t, s=start, e=end: s <= t.position < e)
            else:
                lost = state_error(slots, lambda t, n=now: n - window.length < t.position <= n)
            assert lost <= allowed


@given(window=windows, failures=st.integers(1, 20))
def test_once_failures_are_past_the_threshold_is_whole_again(
    window: Hopping | Sliding, failures: int
) -> None:
    slots = query(Approximate(100.0, window=window), copies=[1], fan_out=1.0, combine="add")
    fresh = slots[0].theta
    late = ("epoch", 0.0, 30, (2.0, 1.0))
    play(slots, [late, *[("loss", 0, [True, False], True)] * failures])
    assert slots[0].theta < fresh
    # Two windows on at most, whatever the unit: 30 rows, 2 s and one epoch each time.
    play_on(slots, [late] * (2 * math.ceil(window.length) + 4), start_epoch=0)
    assert slots[0].theta == fresh


def play_on(slots: list[Slot], story: list, start_epoch: int) -> None:
    now = Now(epoch=start_epoch, newest=2.0, watermark=1.0)
    for _, drift, rows, times in story:
        before, now = now, advance(slots, now, times)
        for slot in slots:
            rows_before = slot.rows
            slot.run(now, drift, rows)
            if isinstance(slot.policy.window, Hopping):
                close_windows(slot, slot.policy.window, before, now, rows_before)


@given(
    half_life=st.integers(1, 20),
    gap=st.integers(1, 20),
    rounds=st.integers(1, 30),
    n=st.integers(1, 3),
)
def test_decaying_losses_pile_up_to_the_stated_sum_at_most(
    half_life: int, gap: int, rounds: int, n: int
) -> None:
    window = Decaying(half_life, "epochs")
    slots = query(Approximate(100.0, window=window), copies=[n], fan_out=1.0, combine="add")
    for turn in range(rounds):
        for slot in slots:
            slot.divergence = slot.theta
            slot.lose(Now(turn * gap, 0.0, 0.0), turn * gap, [], known=True)
    now = (rounds - 1) * gap
    left = sum(
        float(toll.state) * window.remaining(toll.position, now)
        for slot in slots
        for toll in slot.losses
    )
    assert left <= window.piled_up(100.0, gap) * (1 + 1e-12)
    assert sum(float(slot.losses[0].state) for slot in slots) <= 100.0


@given(crashes=st.lists(st.booleans(), max_size=12))
def test_failures_are_never_uncounted_however_recovery_crashes(crashes: list[bool]) -> None:
    slot = Slot(Approximate(8.0), Placement())
    slot.divergence = slot.theta
    slot.lose(Now(0, 0.0, 0.0), 0.0, crashes, known=True)
    assert slot.state == slot.durable
    assert slot.state.failures == 1 + sum(crashes) >= len(slot.losses)
    assert slot.theta == 4.0 / 2**slot.state.failures
