"""What each policy asks for at each event."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.budget import Budget
from tether.core.errors import BadValueError
from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.barrier import Barrier, BarrierState
from tether.policies.events import (
    BarrierAligned,
    EpochApplied,
    Event,
    Flushed,
    Recovered,
    RowsReady,
    WindowEnd,
)
from tether.policies.instructions import (
    BackUpState,
    Instruction,
    RecordFailures,
    TakePart,
)
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.upstream_backup import UpstreamBackup
from tether.policies.window_effects import WindowedState

if TYPE_CHECKING:
    from tether.policies.policy import Policy

PLACE = Placement(copies=2)
ALL: list[Policy] = [
    NoTolerance(),
    MiniBatch(),
    UpstreamBackup(),
    UpstreamBackup(0.5, of_items=100, most_items=10),
    Barrier(5),
    Barrier(2.5, by="seconds", mode="sync", patience=math.inf),
    Approximate(0),
    Approximate(1000),
    Approximate(1000, 10, 4, window=Hopping(10, "epochs"), early=0.8, backup_target=0.25),
    Approximate(1000, window=Sliding(100, "items")),
    Approximate(1000, window=Sliding(5.5)),
    Approximate(1000, window=Decaying(7, "epochs")),
    Approximate(math.inf, math.inf, math.inf),
]

events = st.one_of(
    st.builds(
        EpochApplied,
        epoch=st.integers(0, 1000),
        divergence=st.floats(0, 2000),
        items=st.integers(0, 100),
        newest_event_time=st.none() | st.floats(0, 100),
        watermark=st.none() | st.floats(0, 100),
    ),
    st.builds(
        Recovered, epoch=st.integers(0, 1000), newest_event_time=st.none() | st.floats(0, 100)
    ),
    st.builds(WindowEnd, epoch=st.integers(0, 1000), end=st.floats(0, 1000)),
    st.builds(Flushed, epoch=st.integers(0, 1000), divergence=st.floats(0, 2000)),
    st.builds(RowsReady, epoch=st.integers(0, 1000), items=st.integers(0, 100)),
    st.builds(
        BarrierAligned,
        epoch=st.integers(0, 1000),
        number=st.integers(0, 100),
        complete=st.none() | st.integers(0, 100),
    ),
)


def applied(divergence: float, number: int = 1, items: int = 3) -> EpochApplied:
    return EpochApplied(epoch=number, divergence=divergence, items=items)


def test_approximate_backs_up_only_above_theta() -> None:
    policy = Approximate(1000)
    assert policy.threshold(policy.initial(), PLACE) == 250
    assert policy.step(policy.initial(), applied(250.0), PLACE) == (WindowedState(), ())
    _, asked = policy.step(policy.initial(), applied(math.nextafter(250, 300)), PLACE)
    assert asked == (BackUpState(target=125.0, cause="theta", wait=True),)


def test_early_backups_need_not_be_waited_for() -> None:
    policy = Approximate(1000, early=0.8, backup_target=0.1)
    assert policy.step(policy.initial(), applied(200.0), PLACE)[1] == ()
    assert policy.step(policy.initial(), applied(201.0), PLACE)[1] == (
        BackUpState(target=25.0, cause="theta", wait=False),
    )
    assert policy.step(policy.initial(), applied(251.0), PLACE)[1] == (
        BackUpState(target=25.0, cause="theta", wait=True),
    )


def test_a_divergence_that_is_no_number_is_backed_up_in_full() -> None:
    for theta in (0.0, 1000.0, math.inf):
        policy = Approximate(theta)
        _, asked = policy.step(policy.initial(), applied(math.nan), PLACE)
        assert asked == (BackUpState(target=0.0, cause="theta", wait=True),)


def test_a_budget_of_nought_is_exact() -> None:
    policy = Approximate(0)
    assert policy.step(policy.initial(), applied(5e-324), PLACE)[1] == (
        BackUpState(target=0.0, cause="theta"),
    )
    assert policy.step(policy.initial(), applied(0.0), PLACE)[1] == ()


def test_an_endless_budget_never_backs_up() -> None:
    policy = Approximate(math.inf)
    assert not policy.keeps_backups
    for event in (applied(1e308), applied(math.inf), Flushed(epoch=2, divergence=7.0)):
        assert policy.step(policy.initial(), event, PLACE)[1] == ()


def test_recovery_halves_and_records_before_going_on() -> None:
    policy = Approximate(1000)
    state = policy.initial()
    for k in range(1, 5):
        state, asked = policy.step(state, Recovered(epoch=k), PLACE)
        assert state.failures == k
        assert asked == (RecordFailures(failures=k),)
        assert policy.threshold(state, PLACE) == 250 / 2**k


def test_the_end_of_a_hopping_window_is_recorded_once() -> None:
    policy = Approximate(1000, window=Hopping(10, "epochs"))
    state, _ = policy.step(policy.initial(), Recovered(epoch=3), PLACE)
    end = WindowEnd(epoch=9, end=10.0)
    state, asked = policy.step(state, end, PLACE)
    assert asked == (RecordFailures(failures=0),)
    assert policy.threshold(state, PLACE) == 250
    assert policy.step(state, end, PLACE) == (state, ())


def test_sliding_restores_theta_within_the_same_epoch() -> None:
    policy = Approximate(1000, window=Sliding(10, "epochs"))
    state, _ = policy.step(policy.initial(), Recovered(epoch=5), PLACE)
    assert isinstance(policy.step(state, applied(200.0, number=13), PLACE)[1][0], BackUpState)
    later, asked = policy.step(state, applied(200.0, number=14), PLACE)
    # Not before it is durable: a loss is priced by what is.
    assert asked == (RecordFailures(failures=0),)
    assert policy.threshold(later, PLACE) == 250
    assert policy.step(later, applied(200.0, number=15), PLACE)[1] == ()


def test_decaying_uses_the_whole_share_always() -> None:
    policy = Approximate(1000, 8, window=Decaying(60))
    state, _ = policy.step(policy.initial(), Recovered(epoch=5), PLACE)
    assert policy.thresholds(state, PLACE).theta == 500
    assert policy.thresholds(state, PLACE).l == 4


@pytest.mark.parametrize("policy", [MiniBatch(), Approximate(10)], ids=lambda p: p.name)
def test_a_stop_on_purpose_loses_nothing(policy: Policy) -> None:
    _, asked = policy.step(policy.initial(), Flushed(epoch=4, divergence=0.0), PLACE)
    assert asked == (BackUpState(target=0.0, cause="flush"),)


def test_mini_batch_backs_up_every_epoch_even_without_divergence() -> None:
    policy = MiniBatch()
    assert policy.threshold(policy.initial(), PLACE) == 0
    assert policy.step(policy.initial(), applied(0.0), PLACE)[1] == (
        BackUpState(target=0.0, cause="every-epoch"),
    )
    _, asked = policy.step(policy.initial(), Recovered(epoch=2), PLACE)
    assert asked == (RecordFailures(failures=1),)


def test_no_tolerance_asks_for_nothing_and_counts() -> None:
    policy = NoTolerance()
    assert not policy.keeps_backups
    state = policy.initial()
    for event in (applied(1e9), Recovered(epoch=2), Flushed(epoch=3, divergence=4.0)):
        state, asked = policy.step(state, event, PLACE)
        assert asked == ()
    assert state.failures == 1


def test_what_each_policy_promises() -> None:
    assert MiniBatch().budget == Budget()
    assert NoTolerance().budget.max_state_error == math.inf
    assert Approximate(7, 8, 9).budget == Budget(
        max_state_error=7, max_lost_items=8, max_unacked_items=9
    )


@pytest.mark.parametrize("policy", ALL, ids=repr)
def test_settings_are_plain_and_tell_policies_apart(policy: Policy) -> None:
    text = json.dumps(policy.describe(), allow_nan=False, sort_keys=True)
    assert json.loads(text)["policy"] == policy.name
    same = [p for p in ALL if json.dumps(p.describe(), sort_keys=True) == text]
    assert same == [policy]


def test_settings_do_not_depend_on_how_a_number_is_written() -> None:
    assert repr(Approximate(1000).describe()) == repr(Approximate(1e3, 0.0).describe())


@pytest.mark.parametrize("policy", ALL, ids=repr)
@given(history=st.lists(events, max_size=12))
def test_steps_are_pure_and_their_words_can_be_stored(policy: Policy, history: list[Event]) -> None:
    state = policy.initial()
    for drawn in history:
        event = msgspec.msgpack.decode(msgspec.msgpack.encode(drawn), type=Event)
        stored = msgspec.msgpack.encode(state)
        after, asked = policy.step(state, event, PLACE)
        assert msgspec.msgpack.encode(state) == stored
        again = policy.step(msgspec.msgpack.decode(stored, type=policy.state_type), event, PLACE)
        assert again == (after, asked)
        words = msgspec.msgpack.encode(asked)
        assert msgspec.msgpack.decode(words, type=tuple[Instruction, ...]) == asked
        theta = policy.threshold(after, PLACE)
        assert all(b.target <= theta for b in asked if isinstance(b, BackUpState))
        state = after


@pytest.mark.parametrize(
    "bad",
    [
        {"max_state_error": -1},
        {"max_state_error": math.nan},
        {"max_state_error": 1, "max_lost_items": -1},
        {"max_state_error": 1, "early": 0},
        {"max_state_error": 1, "early": 1.1},
        {"max_state_error": 1, "early": 0.5},
        {"max_state_error": 1, "backup_target": 1},
        {"max_state_error": 1, "backup_target": -0.1},
        {"max_state_error": 1, "window": "hopping"},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadValueError) as caught:
        Approximate(**bad)  # type: ignore[arg-type]
    assert caught.value.do


def test_upstream_backup_saves_the_state_every_so_many_rows() -> None:
    policy = UpstreamBackup(0.5, of_items=100, most_items=10)
    state, asked = policy.step(policy.initial(), applied(1.0, items=9), PLACE)
    assert asked == ()
    state, asked = policy.step(state, applied(1.0, items=1), PLACE)
    assert asked == (BackUpState(target=0.0, cause="every-items"),)
    assert policy.step(state, applied(1.0, items=9), PLACE)[1] == ()


def test_a_part_rests_only_on_one_of_the_newest_complete_snapshot() -> None:
    def onto(policy: Barrier, state: BarrierState, complete: int | None) -> tuple[int | None, bool]:
        (asked,) = policy.step(state, BarrierAligned(epoch=9, number=3, complete=complete), PLACE)[
            1
        ]
        assert isinstance(asked, TakePart)
        return asked.onto, asked.wait

    policy, had = Barrier(2), BarrierState(part=2)
    assert onto(policy, had, 2) == (2, False)
    assert onto(policy, had, 1) == (None, False)  # that one was given up
    assert onto(policy, had, None) == (None, False)
    lost, _ = policy.step(had, Recovered(epoch=8), PLACE)
    assert onto(policy, lost, 2) == (None, False)
    assert onto(Barrier(2, mode="sync"), had, 2) == (2, True)


def test_what_is_rounded_off_is_a_part_of_theta_and_asked_for_with_the_backup() -> None:
    policy = Approximate(100.0, rounding=0.25)
    fresh = policy.initial()
    _, (backup,) = policy.step(fresh, EpochApplied(epoch=0, divergence=51.0, items=1), Placement())
    assert backup == BackUpState(target=25.0, cause="theta", rounding=12.5)
    assert policy.threshold(fresh, Placement()) == 50.0
    assert policy.describe()["rounding"] == 0.25
    assert "rounding" not in Approximate(100.0).describe()
    for early, target, rounding in ((1.0, 0.5, 0.5), (0.6, 0.5, 0.1), (1.0, 0.0, 1.0)):
        with pytest.raises(BadValueError, match="do not fit"):
            Approximate(1.0, early=early, backup_target=target, rounding=rounding)
    with pytest.raises(BadValueError, match="rounding"):
        Approximate(1.0, rounding=-0.1)
