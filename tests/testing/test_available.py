"""An input falls silent, on the stand-in for Spark: answers, corrections, and whatever is killed."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import traceback
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.testing.available_run import INPUTS, Job, values

import tether
from tether.chaos.faults import DRIVER_POINTS

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = [
    tether.Available(
        delay=3.0,
        failure=failure,
        stabilization=stabilization,
        reconcile=reconcile,  # type: ignore[arg-type]
    )
    for reconcile in ("checkpoint", "undo")
    for failure in ("process", "delay")
    for stabilization in ("process", "delay", "suspend")
]


# ---- kills -----------------------------------------------------------------------------------------

Action = tuple[str, float]
SILENCE: list[Action] = [
    *[("send", 0), ("send", 1), ("send", 2), ("step", 0.1)] * 2,
    *[("send", 0), ("send", 1), ("step", 1.0)] * 5,
    *[("send", 2)] * 2,
    ("step", 0.5),
    *[("send", 0), ("send", 1), ("step", 0.5)] * 2,  # corrections and new buckets take turns
    *[("send", 2)] * 3,
    ("step", 0.1),
    *[("send", 0), ("step", 1.5)] * 3,  # two are silent now
    *[("send", 1)] * 3,
    *[("send", 2)] * 5,
    ("step", 1.0),
    ("step", 4.0),
]
"""One input falls silent, comes back in part, two fall silent together, and all come back."""


def perform(job: Job, schedule: list[Action]) -> None:
    """Do what is left of a schedule; may be killed anywhere, and called again."""
    done = job.work / "done"
    first = int(done.read_text()) if done.exists() else 0
    for what, value in schedule[:first]:  # what a new process must know
        if what == "send":
            job.sent[int(value)] += 1
        else:
            job.now += value
    for written in job.inputs:
        written.reopened()
    job.start()
    job.source.now = job.now
    for at, (what, value) in enumerate(schedule[first:], first):
        if what == "send":
            job.send(int(value))
        else:
            job.step(value)
        done.write_text(str(at + 1))
    assert job.query.healing() is None
    job.query.stop()
    job.session.stop()


def in_a_child(job: Job, schedule: list[Action]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            faulthandler.dump_traceback_later(100, exit=True)
            perform(job, schedule)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def check(job: Job, truth: list[Any]) -> None:
    """Stable rows are those of a clean run, in the same order; an epoch that came again came alike."""
    lines = [json.loads(line) for line in (job.work / "given").read_text().splitlines()]
    seen: dict[int, Any] = {}
    for epoch, *rest in lines:
        if rest[0] == "stable":
            assert seen.setdefault(epoch, rest) == rest
    assert job.stable() == truth
    if not job.executors:  # one that is dead leaves its arenas to whoever starts the next
        assert not list((job.work / "arenas").glob("*/*"))


POINTS = [
    ("before-attach", 3),
    ("halfway", 3),
    ("after-apply", 3),
    ("after-commit", 4),
    ("after-copy", 0),
    ("after-tentative", 4),
    ("before-undo", 0),
    ("after-job", 3),
    ("before-spark-commit", 5),
]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return clean(tmp_path_factory.mktemp("truth") / "clean", 12)


def killed(
    work: Path,
    policy: tether.Available,
    strikes: list[tuple[Any, Any, int]],
    executors: int = 0,
) -> Job:
    job = Job(work, policy, executors)
    for point, action, epoch in strikes:
        job.injector.at(point, action, epoch=epoch)
    for _ in range(len(strikes) + 1):
        code = in_a_child(job, SILENCE)
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            return job
    raise AssertionError("it was killed more often than planned")


@pytest.mark.parametrize(
    ("reconcile", "point", "epoch"),
    [
        ("checkpoint", "after-tentative", 4),
        ("undo", "before-undo", 0),
        *[
            pytest.param(reconcile, point, epoch, marks=pytest.mark.long)
            for reconcile in ("checkpoint", "undo")
            for point, epoch in POINTS
        ],
    ],
)
def test_killed_at_a_step(
    tmp_path: Path, truth: list[Any], reconcile: Any, point: Any, epoch: int
) -> None:
    job = killed(
        tmp_path / "job", tether.Available(delay=3.0, reconcile=reconcile), [(point, "kill", epoch)]
    )
    if (reconcile, point) != ("checkpoint", "after-copy"):  # only an undo copies by itself
        assert len(job.injector.struck()) == 1
    check(job, truth)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_killed_twice_anywhere(tmp_path: Path, truth: list[Any], seed: int) -> None:
    random = Random(seed)
    # Every way to handle a failure, both ways to reconcile: each some times.
    policy, executors = POLICIES[seed % len(POLICIES)], random.choice([0, 2])
    strikes = []
    for _ in range(2):
        point = random.choice(POINTS)[0]
        dies = executors and point not in DRIVER_POINTS and random.random() < 0.5
        strikes.append((point, "executor" if dies else "kill", random.randrange(14)))
    check(killed(tmp_path / "job", policy, strikes, executors), truth)


def scattered(random: Random, buckets: int) -> list[Action]:
    """Inputs that fall silent and come back as they like, some of them together."""
    left, silent, found = [buckets] * INPUTS, set[int](), list[Action]()
    while any(left):
        if random.random() < 0.3:
            silent = {n for n in range(INPUTS) if random.random() < 0.3}
        for number in range(INPUTS):
            # Those that were silent come back with much at once.
            many = 1 if number in silent else random.choice([1, 1, 2, 4])
            for _ in range(0 if number in silent and random.random() < 0.9 else many):
                if left[number]:
                    left[number] -= 1
                    found.append(("send", number))
        found.append(("step", random.choice([0.1, 0.5, 1.0, 2.5])))
    return [*found, ("step", 1.0), ("step", 4.0)]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 30))]
)
def test_any_schedule(tmp_path: Path, truth: list[Any], seed: int) -> None:
    random = Random(seed)
    job = Job(tmp_path / "job", POLICIES[seed % len(POLICIES)])
    perform(job, scattered(random, 12))
    check(job, truth)


def clean(work: Path, buckets: int) -> list[Any]:
    """The stable rows of a run in which nothing fails, epoch by epoch."""
    job = Job(work, tether.Available(delay=3.0))
    for _ in range(buckets):
        for number in range(INPUTS):
            job.send(number)
    job.start()
    job.step(0)
    job.query.stop()
    assert job.tentative() == []
    return job.stable()


def test_an_input_that_comes_back_in_part_is_told_as_a_new_failure(
    tmp_path: Path, truth: list[Any]
) -> None:
    job = Job(tmp_path / "job", tether.Available(delay=3.0))
    job.start()
    for _ in range(4):
        job.send(0)
        job.send(1)
    job.step(3.0)
    assert len(job.tentative()) == 4
    job.send(2)
    job.step(0.1)
    assert len(job.stable()) == 1
    job.send(0)
    job.send(1)
    job.step(3.0)
    told = [event.what for event in job.query.story()]
    assert told.count("interrupted") == 1
    for _ in range(4):
        job.send(2)
    job.step(1.0)
    assert job.query.healing() is None
    job.query.stop()
    assert job.stable() == truth[:5]


def named(policy: tether.Available) -> str:
    return f"{policy.reconcile}-{policy.failure}-{policy.stabilization}"


ALWAYS = (
    "checkpoint-process-process",
    "checkpoint-delay-delay",
    "undo-process-process",
    "undo-delay-suspend",
)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(each, marks=() if named(each) in ALWAYS else pytest.mark.long, id=named(each))
        for each in POLICIES
    ],
)
def test_a_silent_input(tmp_path: Path, policy: tether.Available) -> None:
    job = Job(tmp_path / "job", policy)
    job.start()
    for _ in range(2):
        for number in range(INPUTS):
            job.send(number)
        job.step(0.1)
    assert len(job.stable()) == 2
    for _ in range(5):  # the last input is silent
        job.send(0)
        job.send(1)
        job.step(1.0)
    # Without it, and waiting αX = 2.7 s: all buckets but those that are younger.
    late = 2 if policy.failure == "delay" else 0
    early = job.tentative()
    assert len(early) == 5 - late
    assert len(job.stable()) == 2
    assert job.query.healing()["missing_inputs"] == [2]
    assert job.query.bound().tentative_since == min(
        epoch for epoch, (kind, *_) in job.given().items() if kind == "tentative"
    )
    assert 0 < job.query.bound().ahead_bytes == job.query.healing()["ahead_bytes"]
    # What is told is what a query would tell that these rows are all that there is for.
    counts: Counter[int] = Counter()
    for number in range(INPUTS):
        for at in range(2):
            counts.update(values(at, number))
    for at, rows in enumerate(early, 2):
        touched = values(at, 0) + values(at, 1)
        counts.update(touched)
        assert rows == sorted([value, counts[value]] for value in set(touched))
    for _ in range(5):
        job.send(2)
    for number in range(INPUTS):
        job.send(number)
    job.step(1.0)
    job.step(3.0)
    assert job.query.healing() is None
    assert [
        event.what for event in job.query.story() if event.what in ("tentative", "corrected")
    ] == [
        "tentative",
        "corrected",
    ]
    job.query.stop()
    assert not list((tmp_path / "job" / "arenas").rglob("*ahead*"))
    assert job.stable() == clean(tmp_path / "clean", 8)
