"""While inputs are silent, every row of the others is answered in time, whatever α is."""

from __future__ import annotations

import math
import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tether.protocols.consistency import (
    Handling,
    Look,
    Manager,
    Release,
    Replica,
    Waiting,
    manage,
)

X, BUCKET, LATENCY, LOOK = 3.0, 0.1, 0.05, 0.02
"""Seconds: until an answer; of a bucket; until a bucket's end is known; between two looks."""
LAST = 9.0
"""When the last row comes."""
MOST = round(X / BUCKET)
"""Buckets that a release can hold at least: with fewer, it does not keep up with what comes."""
SLACK = BUCKET + LATENCY + LOOK

EXAMPLES = 200 if os.environ.get("TETHER_LONG") else 8

Cut = tuple[int, float, float]
"""An input that is silent from one time to another."""


def first_answers(
    handling: Handling, cuts: list[Cut], longest: float, seed: int = 0, managed: Any = manage
) -> dict[int, tuple[str, float, float]]:
    """By bucket: the kind of its first release, when that was over, and how far living inputs were.

    Args:
        handling: How it is handled.
        cuts: Silences of the second and third input; the first one never fails.
        longest: Seconds that a release takes at most; some take as long.
        seed: Of how long each takes.
        managed: The protocol.
    """
    draw = Random(seed)
    state, now, answers = Manager(stable=0, ahead=0), 0.0, dict[int, tuple[str, float, float]]()

    def reached(number: int) -> int:
        held = [begin for which, begin, end in cuts if which == number and begin <= now < end]
        return max(0, math.floor((min([now, *held]) - LATENCY) / BUCKET + 1e-9))

    while now < LAST + 2 * X:
        inputs = tuple((Replica(complete=at, reach=at),) for at in map(reached, range(3)))
        rows = tuple(
            Waiting(first=bucket, last=bucket, arrived=bucket * BUCKET)
            for bucket in range(max(0, state.stable), math.floor(min(now, LAST) / BUCKET) + 1)
        )
        state, asked = managed(state, Look(now=now, inputs=inputs, waiting=rows), handling)
        for one in asked:
            if isinstance(one, Release):
                now += draw.choice([longest, longest, draw.uniform(0.1, 1.0) * longest])
                for bucket in range(one.first, one.end):
                    answers.setdefault(bucket, (one.kind, now, inputs[0][0].reach))
        now += LOOK
    return answers


def too_late(answers: dict[int, tuple[str, float, float]], within: float = X) -> list[str]:
    """Every bucket that had no answer in time, or one without rows of an input that was there."""
    found = []
    for bucket in range(math.floor(LAST / BUCKET)):
        kind, over, reach = answers[bucket]
        if over - bucket * BUCKET > within:
            found.append(f"bucket {bucket} after {over - bucket * BUCKET:.2f} s")
        if kind == "tentative" and reach <= bucket:
            found.append(f"bucket {bucket} was given before its own rows had come")
    return found


alphas = st.floats(0.15, 0.95)
handlings = st.builds(
    lambda alpha, most, failure, stabilization: Handling(
        wait=alpha * X,
        spare=(1 - alpha) * X,
        failure=failure,
        stabilization=stabilization,
        most=most,
    ),
    alphas,
    st.sampled_from([MOST, 1_000]),
    st.sampled_from(["process", "delay"]),
    st.sampled_from(["process", "delay"]),
)
parts = st.floats(0.1, 1.0)
seeds = st.integers(0, 2**16)


def slowest(handling: Handling, spared: float) -> float:
    """How long a release may take, where it may take this part of (1 - α)X."""
    return min(spared * handling.spare, (X - SLACK) / 3) - LOOK


@given(handlings, parts, st.floats(0.5, 4.0), st.floats(0.1, 5.0), seeds)
@settings(max_examples=20 * EXAMPLES)
def test_one_silent_input(
    handling: Handling, part: float, begin: float, seconds: float, seed: int
) -> None:
    longest = part * slowest(handling, 1.0)
    assert not too_late(first_answers(handling, [(1, begin, begin + seconds)], longest, seed))


@given(
    handlings,
    parts,
    st.lists(
        st.tuples(st.sampled_from([1, 2]), st.floats(0.5, 7.0), st.floats(0.1, 4.0)), max_size=6
    ),
    seeds,
)
@settings(max_examples=30 * EXAMPLES)
def test_inputs_that_fail_again_and_again(
    handling: Handling, part: float, spans: list[tuple[int, float, float]], seed: int
) -> None:
    cuts = [(number, begin, begin + seconds) for number, begin, seconds in spans]
    longest = part * slowest(handling, 1 / 3)
    assert not too_late(first_answers(handling, cuts, longest, seed))


@given(handlings, seeds)
@settings(max_examples=5 * EXAMPLES)
def test_the_first_bucket_of_a_failure_waits_its_time(handling: Handling, seed: int) -> None:
    cuts = [(1, 2.0, 8.0)]
    answers = first_answers(handling, cuts, slowest(handling, 0.3), seed)
    first = min(bucket for bucket, (kind, _, _) in answers.items() if kind == "tentative")
    assert answers[first][1] - first * BUCKET >= handling.wait
    patient = replace(handling, wait=4 * LAST)
    assert {kind for kind, _, _ in first_answers(patient, cuts, 0.1).values()} == {"stable"}


# ---- the tests are tested -------------------------------------------------------------------------


def _delays_by_all_of_the_wait(state: Manager, look: Any, handling: Handling) -> Any:
    return manage(state, look, replace(handling, spare=0.0))


def _gives_what_has_not_come(state: Manager, look: Any, handling: Handling) -> Any:
    far = tuple((replace(each, reach=10**6),) for (each,) in look.inputs)
    return manage(state, replace(look, inputs=far), handling)


def _corrects_first(state: Manager, look: Any, handling: Handling) -> Any:
    after, asked = manage(state, look, handling)
    if after.phase != state.phase == "up-failure":
        after, asked = manage(
            replace(state, phase="stabilization", corrected_last=False), look, handling
        )
    return after, asked


def _gives_one_bucket_first(state: Manager, look: Any, handling: Handling) -> Any:
    after, asked = manage(state, look, handling)
    if state.ahead == state.stable < after.ahead and after.phase == "up-failure":
        return manage(state, look, replace(handling, most=1))
    return after, asked


PATIENT = Handling(wait=0.75 * X, spare=0.25 * X, failure="delay", stabilization="delay", most=MOST)
HARD = [
    (handling, [(1, 2.0, 6.0 + part / 10)])
    for handling in (PATIENT, replace(PATIENT, failure="process", stabilization="process"))
    for part in range(10)
]


@pytest.mark.parametrize(("handling", "cuts"), HARD[::5])
def test_the_hard_silences_hold(handling: Handling, cuts: list[Cut]) -> None:
    assert not too_late(first_answers(handling, cuts, slowest(handling, 1.0)))


@pytest.mark.parametrize(
    "mutation",
    [
        _delays_by_all_of_the_wait,
        _gives_what_has_not_come,
        _corrects_first,
        _gives_one_bucket_first,
    ],
    ids=lambda each: each.__name__.strip("_"),
)
def test_a_wrong_manager_is_noticed(mutation: Any) -> None:
    assert any(
        too_late(first_answers(handling, cuts, slowest(handling, 1.0), managed=mutation))
        for handling, cuts in HARD
    )
