"""Windows give thresholds back when they should, and not before."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BadValueError
from tether.core.windows import Decaying, Hopping, Sliding, Window
from tether.policies.events import EpochApplied, Recovered, WindowEnd
from tether.policies.window_effects import WindowedState, after_epoch, after_loss, after_window

KINDS = [Hopping, Sliding, Decaying]


def epoch(number: int, items: int = 0, **times: float) -> EpochApplied:
    return EpochApplied(epoch=number, divergence=0.0, items=items, **times)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("length", "by"),
    [
        (0, "seconds"),
        (0, "epochs"),
        (-1, "items"),
        (1.5, "epochs"),
        (0.5, "items"),
        (math.inf, "seconds"),
        (math.nan, "seconds"),
        ("60", "seconds"),
        (60, "minutes"),
    ],
)
def test_bad_windows_are_refused(kind: type[Window], length: float, by: str) -> None:
    with pytest.raises(BadValueError) as caught:
        kind(length, by)  # type: ignore[arg-type]
    assert caught.value.why
    assert caught.value.do


@pytest.mark.parametrize("kind", KINDS)
def test_windows_round_trip_with_their_kind(kind: type[Window]) -> None:
    window = kind(60, "items")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(window), type=Window) == window


@given(
    length=st.floats(0.01, 100),
    after=st.floats(-1000, 1000),
    span=st.floats(0, 50),
)
def test_ends_are_given_once_each(length: float, after: float, span: float) -> None:
    window = Hopping(length)
    middle, last = after + span / 3, after + span
    whole = list(window.ends(after=after, upto=last))
    parts = [*window.ends(after=after, upto=middle), *window.ends(after=middle, upto=last)]
    assert whole == parts
    assert all(after < end <= last for end in whole)
    assert len(whole) >= math.floor(span / length) - 1


def test_hopping_starts_anew_at_its_end() -> None:
    window = Hopping(10, "epochs")
    state = after_loss(window, WindowedState(), Recovered(epoch=3))
    state = after_loss(window, state, Recovered(epoch=9))
    assert after_epoch(window, state, epoch(9)).failures == 2
    assert after_window(window, state, WindowEnd(epoch=9, end=10.0)) == WindowedState()


def test_a_loss_right_after_a_hopping_window_counts_for_the_next_one() -> None:
    # What undoes the clearing of the state is wrong in the window that has just begun.
    window = Hopping(10, "epochs")
    state = after_loss(window, WindowedState(), Recovered(epoch=10))
    assert after_window(window, state, WindowEnd(epoch=10, end=10.0)).failures == 1
    assert after_window(window, state, WindowEnd(epoch=19, end=20.0)).failures == 0


def test_hopping_keeps_a_loss_that_may_be_in_the_next_window() -> None:
    window = Hopping(60)
    early = after_loss(window, WindowedState(), Recovered(epoch=1, newest_event_time=50.0))
    both = after_loss(window, early, Recovered(epoch=2, newest_event_time=61.0))
    left = after_window(window, both, WindowEnd(epoch=5, end=60.0))
    assert left == WindowedState(failures=1, failed_at=(61.0,))
    assert after_window(window, left, WindowEnd(epoch=9, end=120.0)) == WindowedState()


def test_a_loss_of_unknown_place_goes_one_window_later() -> None:
    window = Hopping(60)
    state = after_loss(window, WindowedState(), Recovered(epoch=1))
    state = after_window(window, state, WindowEnd(epoch=5, end=60.0))
    assert state.failures == 1
    assert after_window(window, state, WindowEnd(epoch=9, end=120.0)) == WindowedState()


def test_sliding_by_epochs_gives_back_one_failure_at_a_time() -> None:
    window = Sliding(10, "epochs")
    state = after_loss(window, WindowedState(), Recovered(epoch=5))  # newest missing: 4
    state = after_loss(window, state, Recovered(epoch=9))  # newest missing: 8
    seen = {}
    for number in range(9, 20):
        state = after_epoch(window, state, epoch(number))
        seen[number] = state.failures
    assert seen[13] == 2
    assert seen[14] == 1
    assert seen[17] == 1
    assert seen[18] == 0


def test_sliding_by_items_counts_the_slots_rows() -> None:
    window = Sliding(100, "items")
    state = after_epoch(window, WindowedState(), epoch(1, items=30))
    state = after_loss(window, state, Recovered(epoch=2))
    state = after_epoch(window, state, epoch(2, items=99))
    assert state.failures == 1
    assert after_epoch(window, state, epoch(3, items=1)).failures == 0


def test_sliding_by_event_time_waits_for_the_watermark() -> None:
    window = Sliding(60)
    lost = Recovered(epoch=2, newest_event_time=100.0)
    state = after_loss(window, WindowedState(), lost)
    state = after_epoch(window, state, epoch(2, newest_event_time=500.0, watermark=159.0))
    assert state.failures == 1
    assert after_epoch(window, state, epoch(3, newest_event_time=500.0)).failures == 1
    later = epoch(3, newest_event_time=500.0, watermark=160.0)
    assert after_epoch(window, state, later).failures == 0


def test_a_failure_of_unknown_time_is_placed_at_the_newest_time_seen_next() -> None:
    window = Sliding(60)
    state = after_loss(window, WindowedState(), Recovered(epoch=2))
    state = after_epoch(window, state, epoch(2, newest_event_time=130.0, watermark=120.0))
    assert state == WindowedState(failures=1, failed_at=(130.0,))


def test_a_bare_number_of_failures_is_enough_to_go_on() -> None:
    # A store that kept only k: the windows give back late, but they do.
    window = Sliding(10, "epochs")
    state = after_epoch(window, WindowedState(failures=3), epoch(7))
    assert state == WindowedState(failures=3, failed_at=(7.0, 7.0, 7.0))
    assert after_epoch(window, state, epoch(17)) == WindowedState()


@pytest.mark.parametrize("window", [None, Decaying(5, "epochs")])
def test_without_a_window_nothing_is_given_back_nor_kept(window: Window | None) -> None:
    state = WindowedState()
    for number in range(1, 50):
        state = after_loss(window, state, Recovered(epoch=number, newest_event_time=1.0))
        state = after_epoch(window, state, epoch(number, items=10, watermark=1e9))
        state = after_window(window, state, WindowEnd(epoch=number, end=float(number)))
    assert state == WindowedState(failures=49)


@given(
    window=st.builds(
        lambda kind, length: kind(length, "epochs"),
        st.sampled_from([Hopping, Sliding]),
        st.integers(1, 8),
    ),
    steps=st.lists(st.sampled_from(["epoch", "loss"]), max_size=60),
)
def test_failures_counted_are_those_in_the_window(window: Window, steps: list[str]) -> None:
    state, number, losses = WindowedState(), 0, []
    for step in steps:
        if step == "loss":
            state = after_loss(window, state, Recovered(epoch=number))
            losses.append(number if isinstance(window, Hopping) else number - 1)
            continue
        state = after_epoch(window, state, epoch(number))
        number += 1
        for end in Hopping(window.length, "epochs").ends(after=number - 1, upto=number):
            state = after_window(window, state, WindowEnd(epoch=number - 1, end=end))
        now = number if isinstance(window, Hopping) else number - 1
        counted = [at for at in losses if window.remaining(at, now)]
        assert list(state.failed_at) == counted
        assert state.failures == len(counted)


@pytest.mark.parametrize(
    ("length", "by", "every", "why"),
    [(10, "epochs", 2, "overlap"), (10, "items", 2, "overlap"), (10, "seconds", 11, "every 11")],
)
def test_windows_that_cannot_overlap_are_refused(length, by, every, why) -> None:
    with pytest.raises(BadValueError, match=why):
        Hopping(length, by, every)


def test_a_loss_counts_until_its_last_overlapping_window_has_ended() -> None:
    window = Hopping(60, every=20)
    lost = Recovered(epoch=1, newest_event_time=45.0)  # in [0, 60), [20, 80) and [40, 100)
    state = after_loss(window, WindowedState(), lost)
    for end in (60.0, 80.0):
        state = after_window(window, state, WindowEnd(epoch=2, end=end))
        assert state.failures == 1
        assert window.remaining(45.0, end)
    assert after_window(window, state, WindowEnd(epoch=3, end=100.0)) == WindowedState()
    assert not window.remaining(45.0, 100.0)


@given(
    length=st.integers(1, 12),
    every=st.integers(1, 12),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=80),
)
def test_no_overlapping_window_loses_more_than_the_budget(length, every, steps) -> None:
    """Rows up to 9 seconds before their time; every loss is as large as its threshold allows."""
    window, half = Hopping(length, every=min(length, every)), 0.5
    state, watermark = WindowedState(), 0
    lost: dict[int, float] = {}
    for step in steps:
        if step is None:
            ends = [*window.ends(after=watermark, upto=watermark + 3)]
            watermark += 3
            for end in ends:
                # What any row of the window may have lost by the time of its answer.
                assert sum(lost[at] for at in lost if at >= end - length) <= 1.0
                state = after_window(window, state, WindowEnd(epoch=0, end=end))
            continue
        newest = watermark + step
        cost = half * 0.5**state.failures
        state = after_loss(window, state, Recovered(epoch=0, newest_event_time=float(newest)))
        lost[newest] = lost.get(newest, 0.0) + cost


def test_decaying_losses_fade_and_pile_up_to_a_stated_sum() -> None:
    window = Decaying(4, "epochs")
    assert window.remaining(position=10, now=14) == 0.5
    assert window.remaining(position=10, now=3) == 1.0
    worst = window.piled_up(100.0, gap=1)
    now = 10_000
    total = sum(100.0 * window.remaining(at, now) for at in range(now + 1))
    assert total == pytest.approx(worst)
    with pytest.raises(BadValueError, match="gap"):
        window.piled_up(1.0, gap=0)


@pytest.mark.parametrize("kind", [Sliding, Hopping])
def test_a_clock_that_falls_back_gives_nothing_back_early(kind: type[Window]) -> None:
    """A loss that is placed by an older clock is no older than those before it."""
    window = kind(60)
    state = after_loss(window, WindowedState(), Recovered(epoch=1, newest_event_time=100.0))
    state = after_loss(window, state, Recovered(epoch=2, newest_event_time=20.0))
    assert state == WindowedState(failures=2, failed_at=(100.0, 100.0))
    unplaced = after_loss(window, state, Recovered(epoch=3))
    later = after_epoch(window, unplaced, epoch(3, newest_event_time=15.0, watermark=85.0))
    assert later == WindowedState(failures=3, failed_at=(100.0,) * 3)


def test_a_window_begins_no_sooner_than_it_does() -> None:
    """The quotient of the two is rounded up to 152, and 152 · 0.3 is above the place itself."""
    window, now = Hopping(0.3), 45.599999999999994
    assert now < 152 * 0.3
    assert window.remaining(45.4, now) == 1.0
    assert window.remaining(45.2, now) == 0.0
