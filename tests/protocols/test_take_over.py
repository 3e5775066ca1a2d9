"""The take-over protocol: stable answers once, right, never withdrawn; one run that is the query."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tether.protocols import take_over as to
from tether.protocols import take_over_steps as steps
from tether.protocols import waiting

from .take_over_run import World, upto

EVENTS = ("main", "twin", "obey", "lose_main", "lose_twin", "crash")
STRATEGIES: tuple[to.Strategy, ...] = ("process", "delay", "suspend")


def happen(world: World, what: str) -> None:
    {
        "main": world.run_main,
        "twin": world.run_twin,
        "obey": world.obey,
        "lose_main": world.lose_main,
        "lose_twin": world.lose_twin,
        "crash": world.crash,
    }[what]()


def check(world: World) -> None:
    """At any moment: what has been given is right, and one run is the query."""
    assert set(world.sink.tentative).isdisjoint(world.sink.stable)
    # Until the record main's slots are the query, after it the twin's: the snapshot tells which.
    if world.protocol.phase == "whole":
        assert world.note is None or world.protocol.note is None
        assert world.protocol.twin is None


def check_end(world: World) -> None:
    """In the end: every epoch has its stable answer, none is tentative, the state is exact."""
    assert world.main == upto(world.committed)
    assert sorted(world.sink.stable) == list(range(world.committed + 1))
    assert not world.sink.tentative
    assert world.note is None
    assert world.twin is None


def run(events: list[str], strategy: to.Strategy, every: int) -> World:
    world = World(strategy, every)
    for what in events:
        happen(world, what)
        check(world)
    world.settle(5)
    check_end(world)
    return world


TEN_LOSSES = [*["main"] * 7, *["lose_main", "obey", "obey", "main", "twin"] * 10]
CRASHES = [*["main"] * 5, *["lose_main", "obey", "obey", "main", "twin", "crash"] * 10]


@given(
    st.lists(st.sampled_from(EVENTS + ("main", "twin", "obey") * 3), max_size=150),
    st.sampled_from(STRATEGIES),
    st.integers(1, 6),
)
@example(TEN_LOSSES, "delay", 4)
@example(CRASHES, "delay", 4)
@example(CRASHES, "suspend", 3)
def test_any_schedule_ends_exact(events: list[str], strategy: to.Strategy, every: int) -> None:
    run(events, strategy, every)


def paths() -> list[int]:
    """Numbers of instructions after which to crash."""
    return list(range(14))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("after", paths())
def test_crash_after_every_step(strategy: to.Strategy, after: int) -> None:
    world = World(strategy, 4)
    for _ in range(7):
        world.run_main()
    world.lose_main()
    done = 0
    for _ in range(200):
        if world.asked:
            world.obey()
            done += 1
        elif world.protocol.phase == "whole":
            break
        else:
            world.run_twin()
            if world.committed < 9:
                world.run_main()
        if done == after:
            world.crash()
            break
    check(world)
    world.settle(4)
    check_end(world)


def test_third_failure_while_the_twin_runs_starts_another_from_the_same_snapshot() -> None:
    world = World("delay", 4)
    for _ in range(7):
        world.run_main()
    world.lose_main()
    while world.asked:
        world.obey()
    world.run_twin()
    world.lose_main()
    world.lose_twin()
    starts = [one for one in world.asked if isinstance(one, to.StartTwin)]
    assert [(one.twin, one.snapshot) for one in starts] == [(2, 3)]
    world.settle(3)
    check_end(world)


def test_suspended_main_gives_no_tentative_row() -> None:
    world = World("suspend", 4)
    for _ in range(7):
        world.run_main()
    world.lose_main()
    for _ in range(40):
        while world.asked:
            world.obey()
        world.run_main()
        world.run_twin()
        assert not world.sink.tentative
    check_end(world)


def test_healing_gives_nothing_and_writes_no_note() -> None:
    state = to.TakeOver(main=8, tentative=False)
    state, asked = steps.step(state, to.Lost(epoch=9, snapshot=4))
    assert asked == (to.StartTwin(twin=1, snapshot=4),)
    assert state.kind(9) == "stable"
    assert not state.speaks(5)
    state, asked = steps.step(state, to.TwinEnded(epoch=5, twin=1))
    assert asked == (to.HoldMain(),)
    state, asked = steps.step(state, to.MainHeld(epoch=8))
    assert asked == ()
    for epoch in (6, 7):
        assert not state.speaks(epoch)
        state, asked = steps.step(state, to.TwinEnded(epoch=epoch, twin=1))
        assert asked == ()
    state, asked = steps.step(state, to.TwinEnded(epoch=8, twin=1))
    assert asked == (to.SaveTwin(twin=1, epoch=8),)
    state, asked = steps.step(state, to.TwinSaved(epoch=8, twin=1))
    assert asked == (to.RecordTakeOver(epoch=8),)
    state, asked = steps.step(state, to.Recorded(epoch=8))
    assert asked == (to.SwapIn(twin=1, epoch=8), to.ReleaseMain())
    assert state.phase == "whole"


# ---- the test can fail: each of these breaks one rule -------------------------------------------


def broken(rule: str) -> World:
    """A world in which one rule of the protocol does not hold."""

    def step(state: to.TakeOver, event: to.Event) -> object:
        if rule == "speaks of epochs given before" and isinstance(event, to.Noted):
            state, asked = steps.step(state, event)
            early = state.note and replace(state.note, through=state.note.snapshot)
            return replace(state, note=early), asked
        if rule == "takes over before it is there" and isinstance(event, to.MainHeld):
            state = replace(state, phase="saving", stopped=event.epoch, main=event.epoch)
            return state, (to.SaveTwin(twin=state.twins, epoch=event.epoch),)
        if rule == "no note" and isinstance(event, to.Lost) and state.phase == "whole":
            state, asked = steps.step(state, event)
            return steps.step(state, to.Noted(note=asked[0].note))
        return steps.step(state, event)

    def resumed(note: to.Note | None, complete: int, epoch: int, **given: object) -> object:
        if rule == "forgets the note":
            return steps.resumed(None, complete, epoch)
        if rule == "forgets what was given" and note is not None:
            note = replace(note, through=note.since - 1)
        return steps.resumed(note, complete, epoch, **given)  # type: ignore[arg-type]

    return World("delay", 5, step=step, resumed=resumed)


@pytest.mark.parametrize(
    "rule",
    [
        "speaks of epochs given before",
        "takes over before it is there",
        "no note",
        "forgets the note",
        "forgets what was given",
    ],
)
def test_breaking_a_rule_is_seen(rule: str) -> None:
    with pytest.raises(AssertionError):
        many_schedules(rule)


def test_the_same_schedules_hold_otherwise() -> None:
    many_schedules("none")


def many_schedules(rule: str) -> None:
    for crash_at in range(2, 20):
        for twin_epochs in (0, 1, 2):
            schedule(broken(rule), crash_at, twin_epochs)


def schedule(world: World, crash_at: int, twin_epochs: int) -> None:
    for _ in range(9):
        world.run_main()
    world.lose_main()
    for round_ in range(40):
        world.obey()
        world.run_main()
        for _ in range(twin_epochs):
            world.run_twin()
        if round_ == crash_at:
            world.crash()
    world.settle(3)
    check_end(world)


def test_what_is_within_its_bound_goes_on_without_a_twin_and_what_is_tentative_does_not():
    for tentative in (True, False):
        state = to.TakeOver(main=8, tentative=tentative)
        state, asked = steps.step(state, to.Lost(epoch=9, snapshot=8))
        if tentative:
            state, asked = steps.step(state, to.Noted(note=asked[0].note))
        assert isinstance(asked[0], to.HoldMain)  # the twin has nothing to catch up with
        after, asked = steps.step(state, to.Hopeless(twin=1))
        if tentative:
            assert (after, asked) == (state, ())
        else:
            assert after.phase == "whole"
            assert asked == (to.EndTwin(twin=1), to.ReleaseMain())


def after_a_loss(strategy: to.Strategy) -> to.TakeOver:
    """Lost before epoch 30, with the snapshot of epoch 4; the note is durable and the twin starts."""
    state, (asked,) = steps.step(
        to.TakeOver(main=29, strategy=strategy), to.Lost(epoch=30, snapshot=4)
    )
    assert isinstance(asked, to.WriteNote)
    state, _ = steps.step(state, to.Noted(note=asked.note))
    return state


def holds(asked: tuple[to.Instruction, ...]) -> bool:
    return any(isinstance(one, to.HoldMain) for one in asked)


@pytest.mark.parametrize("strategy", ["process", "delay"])
def test_under_delay_main_waits_for_a_twin_that_gives_the_stable_rows(
    strategy: to.Strategy,
) -> None:
    state = after_a_loss(strategy)
    for epoch in range(30, 36):
        state, asked = steps.step(state, to.MainEnded(epoch=epoch))
        assert not holds(asked)
    # Epoch 29 is the last of those whose output was given before.
    state, asked = steps.step(state, to.TwinEnded(epoch=28, twin=1))
    assert not holds(asked)
    state, asked = steps.step(state, to.TwinEnded(epoch=29, twin=1))
    assert holds(asked) == (strategy == "delay")


@pytest.mark.parametrize("strategy", ["process", "delay"])
def test_under_delay_main_waits_for_a_twin_that_comes_no_closer(strategy: to.Strategy) -> None:
    state, held = after_a_loss(strategy), False
    state, _ = steps.step(state, to.TwinEnded(epoch=5, twin=1))
    for n in range(1, waiting.STALLED + 1):
        assert not held
        state, asked = steps.step(state, to.MainEnded(epoch=29 + n))
        held = holds(asked)
        state, asked = steps.step(state, to.TwinEnded(epoch=5 + n, twin=1))
        held = held or holds(asked)
    assert held == (strategy == "delay")


def run_side_by_side(twin_runs, most):
    """Main runs epochs, and the twin one after each for which that is wanted; when main is held."""
    state = after_a_loss("delay")
    state, _ = steps.step(state, to.TwinEnded(epoch=5, twin=1))
    twin = 5
    for n in range(most):
        state, asked = steps.step(state, to.MainEnded(epoch=30 + n))
        if not holds(asked) and twin_runs(n):
            twin += 2
            state, asked = steps.step(state, to.TwinEnded(epoch=twin, twin=1))
        if holds(asked):
            return n
    return None


def test_under_delay_main_waits_for_a_twin_that_comes_closer_too_seldom() -> None:
    """It comes closer by an epoch, now and then: it is never stalled, and never catches up."""
    behind = 29 - 5
    held = run_side_by_side(lambda n: n % 9 == 0 or n % 2 == 0, 200)
    assert waiting.STALLED < held <= behind


@pytest.mark.parametrize("behind", [waiting.FEW, waiting.FEW + 1])
def test_a_query_that_heals_waits_for_few_epochs_only(behind: int) -> None:
    state = to.TakeOver(main=29, tentative=False)
    state, _ = steps.step(state, to.Lost(epoch=30, snapshot=4))
    state, asked = steps.step(state, to.TwinEnded(epoch=29 - behind, twin=1))
    assert holds(asked) == (behind == waiting.FEW)
