"""While an input is silent, every row of the others is answered in time, whatever α is."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tether.protocols.consistency import Handling, Look, Manager, Release, Replica, Waiting, manage

BUCKET, LATENCY, LOOK, EPOCH = 0.1, 0.05, 0.02, 0.15
"""Seconds: of a bucket; until its end is known; between two looks; until a release is given."""
BEGIN, END = 2.0, 8.0
"""When the second of three inputs is cut off, and when it is back."""
X = 3.0


def first_answers(handling: Handling) -> dict[int, tuple[str, float, float]]:
    """By bucket: the kind of its first release, when that was over, and how far the others were."""
    state, now, answers = Manager(stable=0, ahead=0), 0.0, dict[int, tuple[str, float, float]]()
    while now < END + 4:
        at = math.floor((now - LATENCY) / BUCKET + 1e-9)
        there = Replica(complete=max(0, at), reach=max(0, at))
        held = math.floor((BEGIN - LATENCY) / BUCKET)
        cut = there if not BEGIN <= now < END else Replica(complete=held, reach=held)
        rows = tuple(
            Waiting(first=bucket, last=bucket, arrived=bucket * BUCKET)
            for bucket in range(max(0, state.stable), math.floor(now / BUCKET) + 1)
        )
        look = Look(now=now, inputs=((there,), (cut,), (there,)), waiting=rows)
        state, asked = manage(state, look, handling)
        for one in asked:
            if isinstance(one, Release):
                now += EPOCH
                for bucket in range(one.first, one.end):
                    answers.setdefault(bucket, (one.kind, now, there.reach))
        now += LOOK
    return answers


@given(
    alpha=st.floats(0.15, 0.85),
    failure=st.sampled_from(["process", "delay"]),
    stabilization=st.sampled_from(["process", "delay"]),
    most=st.sampled_from([5, 1_000]),
)
@settings(max_examples=150)
def test_no_row_of_a_living_input_waits_for_the_end_of_the_failure(
    alpha: float, failure: str, stabilization: str, most: int
) -> None:
    handling = Handling(
        wait=alpha * X,
        spare=(1 - alpha) * X,
        failure=failure,  # type: ignore[arg-type]
        stabilization=stabilization,  # type: ignore[arg-type]
        most=max(
            most, 5
        ),  # fewer than five of these buckets an epoch are more than it can keep up with
    )
    answers = first_answers(handling)
    for bucket in range(math.floor(BEGIN / BUCKET) - 1, math.floor(END / BUCKET)):
        kind, over, reach = answers[bucket]
        assert over - bucket * BUCKET <= X
        # Rows that come after their bucket was given have no answer until late ones are put right.
        assert kind == "stable" or reach > bucket


@given(alpha=st.floats(0.15, 0.85))
@settings(max_examples=50)
def test_the_first_bucket_of_a_failure_waits_its_time(alpha: float) -> None:
    handling = Handling(wait=alpha * X, spare=(1 - alpha) * X)
    answers = first_answers(handling)
    first = min(bucket for bucket, (kind, _, _) in answers.items() if kind == "tentative")
    assert answers[first][1] - first * BUCKET >= handling.wait
    patient = replace(handling, wait=END)
    assert {kind for kind, _, _ in first_answers(patient).values()} == {"stable"}
