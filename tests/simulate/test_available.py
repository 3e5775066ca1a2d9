"""Inputs that fall silent, in chains with replicas: the papers' properties over many schedules."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.simulate.chains import WAIT, Schedule, problems, run, schedules

from tether.protocols import consistency
from tether.protocols.consistency import (
    CopyState,
    Handling,
    Look,
    Manager,
    Release,
    Replica,
    Step,
    TentativeLost,
    Undo,
    Waiting,
    manage,
)


@given(schedules())
@settings(max_examples=5_000 if os.environ.get("TETHER_LONG") else 400)
def test_whatever_fails_stable_rows_are_those_of_a_clean_run(schedule: Schedule) -> None:
    assert not problems(run(schedule))


@given(schedules(longest=WAIT - 2, crashes=False))
@settings(max_examples=60)
def test_short_failures_of_one_input_are_masked(schedule: Schedule) -> None:
    """Failures shorter than αX: nothing is tentative, where they do not follow each other."""
    alone = Schedule(handling=schedule.handling, sources=(schedule.sources[0][:1], (), ()))
    done = run(alone)
    assert not problems(done)
    for node in done.nodes.values():
        assert not [entry for entry in node.log.written if entry.kind == "tentative"]


def test_a_reader_switches_to_the_replica_that_lives() -> None:
    handling = Handling(wait=float(WAIT))
    done = run(Schedule(handling=handling, down=(("A", 10, 20),)))
    assert not problems(done)
    last = done.nodes["C"]
    assert not [entry for entry in last.log.written if entry.kind == "tentative"]
    assert last.seen.switches[0][0] in (10, 11)
    assert last.seen.switches[0][1].replica == 1


def test_a_reader_prefers_a_stable_replica_to_a_tentative_one() -> None:
    """Only A loses an input: C goes on with B, and never sees anything tentative."""
    done = run(Schedule(handling=Handling(wait=float(WAIT)), links=(("A", 1, 0, 10, 12),)))
    assert not problems(done)
    assert "up-failure" in done.nodes["A"].seen.phases
    assert done.nodes["C"].seen.phases == ["stable"]


def test_failures_and_corrections_travel_down_a_chain() -> None:
    """Both replicas lose s1: C answers from tentative rows, and corrects them in turn (figure 3)."""
    done = run(Schedule(handling=Handling(wait=float(WAIT)), sources=((), ((10, 12),), ())))
    assert not problems(done)
    for node in done.nodes.values():
        kinds = [entry.kind for entry in node.log.written]
        first = kinds.index("tentative")
        corrected = next(entry for entry in node.log.written if entry.undo is not None)
        assert corrected.number > first
        assert corrected.kind == "stable"
        assert any(entry.done for entry in node.log.written)
    assert done.nodes["C"].seen.phases[-1] == "stable"


# ---- the tests are tested -------------------------------------------------------------------------


def _stable_though_incomplete(state: Manager, event: Any, handling: Handling) -> Step:
    if isinstance(event, Look):  # the last input is taken for complete, whatever it says
        first = max(each.complete for each in event.inputs[0])
        last = tuple(replace(each, complete=first) for each in event.inputs[-1])
        event = replace(event, inputs=(*event.inputs[:-1], last))
    return manage(state, event, handling)


def _withdraws_nothing(state: Manager, event: Any, handling: Handling) -> Step:
    after, asked = manage(state, event, handling)
    if any(isinstance(each, Undo) for each in asked):  # jumps over what it gave early
        after = replace(
            after, stable=max(after.stable, state.ahead), ahead=max(after.ahead, state.ahead)
        )
    return after, asked


def _gives_a_bucket_twice(state: Manager, event: Any, handling: Handling) -> Step:
    after, asked = manage(state, event, handling)
    if state.phase == "stabilization" and any(isinstance(each, Release) for each in asked):
        after = replace(after, stable=max(state.stable, after.stable - 1))
    return after, asked


def _never_early(state: Manager, event: Any, handling: Handling) -> Step:
    return manage(state, event, replace(handling, wait=1_000.0))


def _never_corrects(state: Manager, event: Any, handling: Handling) -> Step:
    if isinstance(event, Look) and state.ahead > state.stable:
        late = tuple(
            tuple(replace(each, complete=min(each.complete, state.stable)) for each in replicas)
            for replicas in event.inputs
        )
        event = replace(event, inputs=late)
    return manage(state, event, handling)


def _works_on_no_copy(state: Manager, event: Any, handling: Handling) -> Step:
    after, asked = manage(state, event, handling)
    return after, tuple(each for each in asked if not isinstance(each, CopyState))


def _forgets_what_was_lost(state: Manager, event: Any, handling: Handling) -> Step:
    if isinstance(event, TentativeLost):
        return state, ()
    return manage(state, event, handling)


def _stays_with_the_dead(state: Manager, event: Any, handling: Handling) -> Step:
    if isinstance(event, Look):
        event = replace(event, inputs=tuple(replicas[:1] for replicas in event.inputs))
    return manage(state, event, handling)


MUTATIONS = [
    _stable_though_incomplete,
    _withdraws_nothing,
    _gives_a_bucket_twice,
    _never_early,
    _never_corrects,
    _works_on_no_copy,
    _forgets_what_was_lost,
    _stays_with_the_dead,
]

HARD = [
    Schedule(
        handling=Handling(
            wait=float(WAIT), failure=failure, stabilization=stabilization, most=most
        ),  # type: ignore[arg-type]
        sources=((), ((8, 9), (19, 2), (23, 8)), ((12, 10),)),
        links=(("A", 0, 0, 26, 6),),
        down=(("C", 16, 2), ("A", 30, 12)),
    )
    for failure in ("process", "delay")
    for stabilization in ("process", "delay", "suspend")
    for most in (1, 1_000)
] + [Schedule(handling=Handling(wait=float(WAIT)), down=(("A", 10, 20),))]


@pytest.mark.parametrize("schedule", HARD)
def test_the_hard_schedules_hold(schedule: Schedule) -> None:
    assert not problems(run(schedule))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__.strip("_"))
def test_a_wrong_manager_is_noticed(mutation: Any) -> None:
    def wrong(schedule: Schedule) -> bool:
        try:
            return bool(problems(run(schedule, manage=mutation)))
        except AssertionError:
            return True

    assert any(wrong(schedule) for schedule in HARD)


# ---- single decisions -----------------------------------------------------------------------------

THERE, GONE = Replica(complete=9, reach=9), Replica(complete=5, reach=5)
FAILED = Manager(stable=5, ahead=7, phase="up-failure", silent=frozenset({1}), following=(0, 0))
ROWS = (Waiting(first=5, last=8, arrived=100.0),)


def test_the_tentative_frontier_stays_while_all_waits_for_corrections() -> None:
    back = Replica(complete=6, reach=6)
    look = Look(now=200.0, inputs=((THERE,), (back,)), waiting=ROWS)
    _, asked = manage(FAILED, look, Handling(wait=1.0, stabilization="suspend"))
    kinds = [each.kind for each in asked if isinstance(each, Release)]
    assert kinds == ["stable"]


def test_both_kinds_take_turns_while_late_buckets_are_put_right() -> None:
    state, kinds = replace(FAILED, ahead=6), []
    rows = (Waiting(first=5, last=40, arrived=0.0),)
    for _ in range(6):
        look = Look(
            now=9.0,
            inputs=((Replica(complete=40, reach=40),), (Replica(complete=20, reach=20),)),
            waiting=rows,
        )
        state, asked = manage(state, look, Handling(wait=1.0, most=2))
        kinds += [each.kind for each in asked if isinstance(each, Release)]
    assert kinds == ["tentative", "stable"] * 3


def test_without_a_wait_nothing_is_ever_tentative() -> None:
    look = Look(now=1e9, inputs=((THERE,), (GONE,)), waiting=ROWS)
    _, asked = manage(Manager(stable=5, ahead=5), look, Handling(wait=float("inf")))
    assert asked == (consistency.Wait(until=float("inf")),)
