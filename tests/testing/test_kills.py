"""A real SIGKILL of a worker, an executor and a driver at every named point, under every policy.

One query for each policy and victim is struck at all points that it comes to, one after the other. The
runtime is the shipped one, on the stand-in for Spark: workers, executors, drivers are processes there,
and the judge looks at every epoch. What Spark itself does when one of them dies is tried by
``tests/chaos`` and ``tests/spark/test_cluster.py``.
"""

from __future__ import annotations

from typing import get_args

import pytest
from tests.kills import OF_DRIVER, PROPERTY, victims

from tether.chaos.faults import Point
from tether.testing.fuzz import Program, run
from tether.testing.fuzz.program import Policy, Stage, State, Step, Strike

POLICIES = {
    "no-tolerance": Policy(kind="none"),
    "approximate": Policy(kind="approximate", theta=400.0, early=0.1, target=0.05),
    "mini-batch": Policy(kind="mini-batch"),
    "upstream-backup": Policy(kind="upstream-backup", every=0.4),
    "barrier-async": Policy(kind="barrier", interval=2, mode="async"),
    "barrier-sync": Policy(kind="barrier", interval=2, mode="sync"),
}
EVERYBODY = tuple(POLICIES)
KEEP = EVERYBODY[1:]
COMES_TO = {
    # First, before losses have made thresholds so small that every backup has to be waited for.
    "during-writing": ("approximate", "barrier-async"),
    "before-attach": EVERYBODY,
    "after-log": ("upstream-backup",),
    "halfway": EVERYBODY,
    "after-apply": EVERYBODY,
    "during-backup": KEEP,
    "during-compaction": ("approximate", "mini-batch"),
    "after-commit": EVERYBODY,
    "during-recovery": KEEP,
    "during-replay": ("upstream-backup",),
    "during-rewind": ("barrier-async", "barrier-sync"),
    "after-job": EVERYBODY,
    "before-spark-commit": EVERYBODY,
    "store-append": KEEP,
    "store-read": KEEP,
    "store-commit": KEEP,
}
"""Points, with the policies that come there."""
AFTER_A_LOSS = ("during-recovery", "during-replay", "during-rewind", "store-read")
COUNT = Stage(
    name="s0",
    slots=2,
    key=("k",),
    states=(State(name="t0", kind="table", divergence="l1", keys=("k",)),),
    steps=(Step(state="t0", what="add"),),
)


def points_of(policy: str, victim: str) -> list[str]:
    return [at for at, who in COMES_TO.items() if policy in who and victim in victims(at)]


def struck(policy: str, victim: str) -> Program:
    """A count of keys that is struck every other epoch, at one point after the other."""
    strikes = []
    for number, point in enumerate(points_of(policy, victim)):
        epoch = 2 + 2 * number
        # Where the executor is the driver, as in Spark's local mode, both die by one blow.
        action = "kill" if victim == "worker" or point in OF_DRIVER else "executor"
        if victim == "executor":
            action = "executor"
        if point in AFTER_A_LOSS:
            strikes.append(Strike(point="before-attach", action="forget", epoch=epoch, slot=0))
        strikes.append(Strike(point=point, action=action, epoch=epoch))
    last = max(strike.epoch for strike in strikes)
    rows = [
        tuple(
            {"k": k, "u": k % 4, "n": 1 + k, "v": 1.0, "m": 0, "i": 8 * epoch + k, "p": epoch}
            # Few keys change, so that backups of them are smaller than the whole state.
            for k in (range(8) if not epoch else (epoch % 8, (epoch + 3) % 8))
        )
        for epoch in range(last + 4)
    ]
    return Program(
        stages=(COUNT,),
        policy=POLICIES[policy],
        epochs=tuple(rows),
        arena_scope="executor" if victim == "executor" else "node",
        strikes=tuple(strikes),
        compacts=True,
    )


@pytest.mark.parametrize("victim", ["worker", "executor", "driver"])
@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_dies_wherever_no_more_is_lost_than_was_told(policy, victim, record_property):
    program = struck(policy, victim)
    outcome = run(program)
    assert outcome.findings == []
    assert outcome.ended == ""
    assert outcome.epochs == len(program.epochs)
    killed = {point for point, action in outcome.struck if action != "forget"}
    assert killed == set(points_of(policy, victim))
    if policy not in ("no-tolerance", "approximate"):
        assert outcome.looseness == []  # no answer was ever wrong
    for point in killed:
        record_property(PROPERTY, ("in process", policy, victim, point))


def test_every_point_is_among_them():
    assert set(COMES_TO) == set(get_args(Point))
